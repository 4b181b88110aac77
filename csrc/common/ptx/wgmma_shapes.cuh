// Inline PTX: multiplications by Hopper's tensor cores of widths that wgmma.cuh lacks, both
// matrices in shared memory and contiguous along k.
#pragma once

#include "common/ptx/wgmma.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

// clang-format off
#define REGISTERS_8(d, i)                                           \
    "+f"((d)[i]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3]), \
    "+f"((d)[i + 4]), "+f"((d)[i + 5]), "+f"((d)[i + 6]), "+f"((d)[i + 7])
#define WGMMA_N80(TYPE)                                                       \
    asm volatile(                                                             \
        "{\n"                                                                 \
        ".reg .pred accumulates;\n"                                           \
        "setp.ne.b32 accumulates, %42, 0;\n"                                  \
        "wgmma.mma_async.sync.aligned.m64n80k16.f32." TYPE "." TYPE " "       \
        "{%0, %1, %2, %3, %4, %5, %6, %7, "                                   \
        "%8, %9, %10, %11, %12, %13, %14, %15, "                              \
        "%16, %17, %18, %19, %20, %21, %22, %23, "                            \
        "%24, %25, %26, %27, %28, %29, %30, %31, "                            \
        "%32, %33, %34, %35, %36, %37, %38, %39}, "                           \
        "%40, %41, accumulates, 1, 1, 0, 0;\n"                                \
        "}\n"                                                                 \
        : REGISTERS_8(d, 0), REGISTERS_8(d, 8), REGISTERS_8(d, 16),           \
          REGISTERS_8(d, 24), REGISTERS_8(d, 32)                              \
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulates))                  \
    )
// clang-format on

// Starts d (64 x 80) = a (64 x 16) * b (16 x 80), plus d if it accumulates.
template <>
__device__ __forceinline__ void wgmma_m64k16<__half, Major::K, Major::K, 80>(
    float (&d)[40], uint64_t a, uint64_t b, bool accumulates
) {
    WGMMA_N80("f16");
}

template <>
__device__ __forceinline__ void wgmma_m64k16<__nv_bfloat16, Major::K, Major::K, 80>(
    float (&d)[40], uint64_t a, uint64_t b, bool accumulates
) {
    WGMMA_N80("bf16");
}

#undef REGISTERS_8
#undef WGMMA_N80

}  // namespace ptx

#endif  // TWIN_EMULATOR
