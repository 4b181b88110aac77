// Instructions that the emulator models and no kernel of csrc uses; common/ptx has
// those that kernels use.
#pragma once

#include <cuda_fp16.h>

#include <type_traits>

#include "common/ptx/memory.cuh"
#include "common/ptx/tma.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

__device__ __forceinline__ int cluster_block_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return static_cast<int>(rank);
}

// Arrives at another block's instance of an mbarrier.
__device__ __forceinline__ void mbarrier_arrive_remote(uint64_t* barrier, int block) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
        "}\n" ::"r"(shared_address(barrier)),
        "r"(block)
        : "memory"
    );
}

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Loads into several blocks of the cluster, whose ranks are the bits of `blocks`: into
// the instance of `shared` in each, where the bytes count for its instance of the
// mbarrier.
__device__ __forceinline__ void tma_load_multicast(
    void* shared, const CUtensorMap* map, int x, int y, int z, uint64_t* barrier,
    uint16_t blocks
) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(shared)),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "h"(blocks)
        : "memory"
    );
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
