// Inline PTX: small matrices in the registers of a warp, in fragments as the PTX ISA lays
// them out, and the tensor cores' instructions on them, since Ampere.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "common/ptx/memory.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

// Shape and type are part of the instruction's text, which must be a literal: hence a macro.
// clang-format off
#define MMA(SHAPE, TYPE)                                                   \
    asm volatile(                                                          \
        "mma.sync.aligned." SHAPE ".row.col.f32." TYPE "." TYPE ".f32 "    \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "                   \
        "{%10, %11, %12, %13};"                                            \
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                   \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),\
          "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3])                       \
    )
// clang-format on

// Loads 4 matrices of 8 rows of 16 bytes: lanes 8 i to 8 i + 7 pass the addresses of the rows
// of matrix i. Lane l gets columns 2 (l % 4) and 2 (l % 4) + 1 of row l / 4.
__device__ __forceinline__ void ldmatrix(uint32_t (&fragment)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]),
                   "=r"(fragment[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Transposes each matrix: lane l gets rows 2 (l % 4) and 2 (l % 4) + 1 of column l / 4.
__device__ __forceinline__ void ldmatrix_transposed(
    uint32_t (&fragment)[4], const void* row
) {
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
        : "r"(shared_address(row))
        : "memory"
    );
}

// Stores 4 matrices of 8 rows of 16 bytes, the inverse of ldmatrix; since Hopper.
__device__ __forceinline__ void stmatrix(void* row, const uint32_t (&fragment)[4]) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
            shared_address(row)
        ),
        "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3])
        : "memory"
    );
}

// d (16 x 8) = a (16 x 16) * b (16 x 8) + c, with a and b of type T, and d in float32.
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(
    float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4]
) {
    static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
    if constexpr (std::is_same_v<T, __half>) MMA("m16n8k16", "f16");
    if constexpr (std::is_same_v<T, __nv_bfloat16>) MMA("m16n8k16", "bf16");
}

// The nearest tf32 number (10 bits of fraction), as a float's bits; ties away from zero.
__device__ __forceinline__ uint32_t round_to_tf32(float x) {
    uint32_t result;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(x));
    return result;
}

// d (16 x 8) = a (16 x 8) * b (8 x 8) + c, ignoring the lowest 13 bits of a and b.
__device__ __forceinline__ void mma_m16n8k8_tf32(
    float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4]
) {
    MMA("m16n8k8", "tf32");
}

#undef MMA

}  // namespace ptx

#endif  // TWIN_EMULATOR
