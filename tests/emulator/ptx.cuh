// Instructions that the emulator models and no kernel of csrc uses; common/ptx has
// those that kernels use.
#pragma once

#include <cuda_fp16.h>

#include <type_traits>

#include "common/ptx/memory.cuh"
#include "common/ptx/tma.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

// The block's rank in its cluster.
__device__ __forceinline__ int cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return static_cast<int>(rank);
}

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// d (16 x 8) = a (16 x 16) * b (16 x 8) + c (16 x 8) with sums in float16, as pairs.
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(
    uint32_t (&d)[2], const uint32_t (&a)[4], const uint32_t (&b)[2],
    const uint32_t (&c)[2]
) {
    static_assert(std::is_same_v<T, __half>);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
        "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};"
        : "=r"(d[0]), "=r"(d[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]),
          "r"(c[1])
    );
}

}  // namespace ptx

#endif  // TWIN_EMULATOR
