// Inline PTX: multiplications of 8-bit floats by Hopper's tensor cores; wgmma.cuh has the rest.
#pragma once

#include "common/ptx/wgmma.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

// Bits of exponent and of fraction: float8_e4m3fn, which has no infinities, and float8_e5m2.
enum class Float8 { e4m3, e5m2 };

// clang-format off
#define PLACES_0_TO_31 \
    "%0, %1, %2, %3, %4, %5, %6, %7, " \
    "%8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define PLACES_0_TO_63 \
    PLACES_0_TO_31 ", " \
    "%32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, " \
    "%56, %57, %58, %59, %60, %61, %62, %63"
#define REGISTERS_8(i)                                                  \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]),         \
    "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define REGISTERS_32(i) \
    REGISTERS_8(i), REGISTERS_8(i + 8), REGISTERS_8(i + 16), REGISTERS_8(i + 24)
#define SUMS_64 REGISTERS_32(0)
#define SUMS_128 SUMS_64, REGISTERS_32(32)
#define WGMMA_OF(N, PLACES, A, B, ACCUMULATES, SUMS, A_TYPE, B_TYPE)    \
    asm volatile(                                                       \
        "{\n"                                                           \
        ".reg .pred accumulates;\n"                                     \
        "setp.ne.b32 accumulates, " ACCUMULATES ", 0;\n"                \
        "wgmma.mma_async.sync.aligned.m64n" N "k32.f32." A_TYPE "." B_TYPE \
        " {" PLACES "}, " A ", " B ", accumulates, 1, 1;\n"             \
        "}\n"                                                           \
        : SUMS                                                          \
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulates))            \
    )
#define WGMMA(A_TYPE, B_TYPE)                                                        \
    if constexpr (N == 64) {                                                         \
        WGMMA_OF("64", PLACES_0_TO_31, "%32", "%33", "%34", SUMS_64, A_TYPE, B_TYPE); \
    } else {                                                                         \
        WGMMA_OF(                                                                    \
            "128", PLACES_0_TO_63, "%64", "%65", "%66", SUMS_128, A_TYPE, B_TYPE     \
        );                                                                           \
    }
// clang-format on

// Starts d (64 x N) = a (64 x 32) * b (32 x N), plus d if it accumulates, with d as in
// wgmma.cuh. Both matrices are contiguous along k, as they must be. Sums have 13 bits of
// fraction: the terms, d among them, lose what lies below that in the largest.
template <int N, Float8 A_TYPE, Float8 B_TYPE>
__device__ __forceinline__ void wgmma_m64k32(
    float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulates
) {
    static_assert(N == 64 || N == 128);
    constexpr bool A_IS_E5M2 = A_TYPE == Float8::e5m2;
    constexpr bool B_IS_E5M2 = B_TYPE == Float8::e5m2;
    if constexpr (!A_IS_E5M2 && !B_IS_E5M2) {
        WGMMA("e4m3", "e4m3")
    }
    if constexpr (!A_IS_E5M2 && B_IS_E5M2) {
        WGMMA("e4m3", "e5m2")
    }
    if constexpr (A_IS_E5M2 && !B_IS_E5M2) {
        WGMMA("e5m2", "e4m3")
    }
    if constexpr (A_IS_E5M2 && B_IS_E5M2) {
        WGMMA("e5m2", "e5m2")
    }
}

#undef PLACES_0_TO_31
#undef PLACES_0_TO_63
#undef REGISTERS_32
#undef SUMS_64
#undef SUMS_128
#undef WGMMA_OF
#undef REGISTERS_8
#undef WGMMA

}  // namespace ptx

#endif  // TWIN_EMULATOR
