// All inline PTX of the project: instructions that CUDA C++ has no function for, under
// names that say what they do. The emulator has functions of the same names.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#ifdef TWIN_EMULATOR
#include "emulated_ptx.h"
#else

#include <cstdint>
#include <type_traits>

namespace ptx {

// ---- Approximate functions ----------------------------------------------------------

// 2^x with a relative error of 2^-22. Results below 2^-126 become 0. The function
// __exp2f spends three more instructions on those.
__device__ __forceinline__ float exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// 1 / x with an error of one unit in the last place. Where x or the result lies below
// 2^-126, the result is inf or 0.
__device__ __forceinline__ float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// ---- Integers -----------------------------------------------------------------------

// All 64 bits of a product. Of the same in C++ the compiler makes an addition more, or
// one multiplication for each half.
__device__ __forceinline__ uint64_t multiply_wide(uint32_t x, uint32_t y) {
    uint64_t result;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(result) : "r"(x), "r"(y));
    return result;
}

// ---- Asynchronous copies ------------------------------------------------------------

__device__ __forceinline__ uint32_t shared_address(const void* shared) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Starts a copy of 4, 8 or 16 bytes, both addresses being multiples of that. 16 bytes
// go past the L1 cache, which has no use for what is read once.
template <int BYTES>
__device__ __forceinline__ void cp_async(void* shared, const void* global) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
    const uint32_t to = shared_address(shared);
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to),
                     "l"(global),
                     "n"(BYTES)
                     : "memory");
    }
}

// The same where only the first source_bytes are read, and the rest becomes 0.
template <int BYTES>
__device__ __forceinline__ void cp_async(
    void* shared, const void* global, int source_bytes
) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
    const uint32_t to = shared_address(shared);
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                     "l"(global),
                     "r"(source_bytes)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to),
                     "l"(global),
                     "n"(BYTES),
                     "r"(source_bytes)
                     : "memory");
    }
}

// Makes one group of the copies that the thread has started since the last group.
__device__ __forceinline__ void cp_async_commit_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until only this many of the thread's groups, the newest, are unfinished.
template <int UNFINISHED>
__device__ __forceinline__ void cp_async_wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(UNFINISHED) : "memory");
}

// Waits for all copies of the thread.
__device__ __forceinline__ void cp_async_wait_all() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// ---- Matrices, held by a warp in fragments as the PTX ISA lays down -----------------

// COUNT matrices of 8 rows of 16 bytes: lanes 8 i to 8 i + 7 pass where the rows of
// matrix i begin. Lane l gets columns 2 (l % 4) and the next one of row l / 4.
template <int COUNT>
__device__ __forceinline__ void ldmatrix(uint32_t (&fragment)[COUNT], const void* row) {
    static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4);
    const uint32_t address = shared_address(row);
    if constexpr (COUNT == 1) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                     : "=r"(fragment[0])
                     : "r"(address)
                     : "memory");
    } else if constexpr (COUNT == 2) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(fragment[0]), "=r"(fragment[1])
                     : "r"(address)
                     : "memory");
    } else {
        asm volatile(
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
            : "r"(address)
            : "memory"
        );
    }
}

// The same of the transposed matrices: rows 2 (l % 4) and the next one of column l / 4.
template <int COUNT>
__device__ __forceinline__ void ldmatrix_transposed(
    uint32_t (&fragment)[COUNT], const void* row
) {
    static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4);
    const uint32_t address = shared_address(row);
    if constexpr (COUNT == 1) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                     : "=r"(fragment[0])
                     : "r"(address)
                     : "memory");
    } else if constexpr (COUNT == 2) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(fragment[0]), "=r"(fragment[1])
                     : "r"(address)
                     : "memory");
    } else {
        asm volatile(
            "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
            : "r"(address)
            : "memory"
        );
    }
}

// d (16 x 8) = a (16 x 16) * b (16 x 8) + c (16 x 8); T is the type of a and b, and the
// sums are float32.
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(
    float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4]
) {
    static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
    if constexpr (std::is_same_v<T, __half>) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[0]),
              "r"(a[1]),
              "r"(a[2]),
              "r"(a[3]),
              "r"(b[0]),
              "r"(b[1]),
              "f"(c[0]),
              "f"(c[1]),
              "f"(c[2]),
              "f"(c[3])
        );
    } else {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[0]),
              "r"(a[1]),
              "r"(a[2]),
              "r"(a[3]),
              "r"(b[0]),
              "r"(b[1]),
              "f"(c[0]),
              "f"(c[1]),
              "f"(c[2]),
              "f"(c[3])
        );
    }
}

// The same with sums in half, as pairs.
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(
    uint32_t (&d)[2],
    const uint32_t (&a)[4],
    const uint32_t (&b)[2],
    const uint32_t (&c)[2]
) {
    static_assert(std::is_same_v<T, __half>);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
        "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};"
        : "=r"(d[0]), "=r"(d[1])
        : "r"(a[0]),
          "r"(a[1]),
          "r"(a[2]),
          "r"(a[3]),
          "r"(b[0]),
          "r"(b[1]),
          "r"(c[0]),
          "r"(c[1])
    );
}

// d (16 x 8) = a (16 x 8) * b (8 x 8) + c (16 x 8) of float32 numbers, of which a and b
// lose the lowest 13 bits: those are not looked at.
__device__ __forceinline__ void mma_m16n8k8_tf32(
    float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4]
) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]),
          "r"(a[1]),
          "r"(a[2]),
          "r"(a[3]),
          "r"(b[0]),
          "r"(b[1]),
          "f"(c[0]),
          "f"(c[1]),
          "f"(c[2]),
          "f"(c[3])
    );
}

}  // namespace ptx

#endif  // TWIN_EMULATOR
