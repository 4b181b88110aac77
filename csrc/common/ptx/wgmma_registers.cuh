// Inline PTX: multiplications by Hopper's tensor cores whose left matrix is in registers;
// wgmma.cuh has the rest.
#pragma once

#include "common/ptx/wgmma.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

// clang-format off
#define PLACES_0_TO_31 \
    "%0, %1, %2, %3, %4, %5, %6, %7, " \
    "%8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define PLACES_32_TO_47 \
    "%32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47"
#define PLACES_32_TO_63 \
    PLACES_32_TO_47 ", " \
    "%48, %49, %50, %51, %52, %53, %54, %55, " \
    "%56, %57, %58, %59, %60, %61, %62, %63"
#define PLACES_64_TO_95 \
    "%64, %65, %66, %67, %68, %69, %70, %71, " \
    "%72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, " \
    "%88, %89, %90, %91, %92, %93, %94, %95"
#define PLACES_96_TO_127 \
    "%96, %97, %98, %99, %100, %101, %102, %103, " \
    "%104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, " \
    "%120, %121, %122, %123, %124, %125, %126, %127"
#define REGISTERS_8(d, i)                                           \
    "+f"((d)[i]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3]), \
    "+f"((d)[i + 4]), "+f"((d)[i + 5]), "+f"((d)[i + 6]), "+f"((d)[i + 7])
#define REGISTERS_32(d, i)                        \
    REGISTERS_8(d, i), REGISTERS_8(d, i + 8),     \
    REGISTERS_8(d, i + 16), REGISTERS_8(d, i + 24)
#define WGMMA(N, TYPE, PLACES, A, B, ACCUMULATES, B_IS_MN, ...)                    \
    asm volatile(                                                                  \
        "{\n"                                                                      \
        ".reg .pred accumulates;\n"                                                \
        "setp.ne.b32 accumulates, " ACCUMULATES ", 0;\n"                           \
        "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE             \
        " {" PLACES "}, {" A "}, " B ", accumulates, 1, 1, " B_IS_MN ";\n"         \
        "}\n"                                                                      \
        : __VA_ARGS__                                                              \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                      \
          "r"(static_cast<int>(accumulates)), "n"(static_cast<int>(B_MAJOR))       \
    )
#define WGMMA_N64(TYPE)                                                            \
    WGMMA("64", TYPE, PLACES_0_TO_31, "%32, %33, %34, %35", "%36", "%37", "%38",   \
          REGISTERS_32(d, 0))
#define WGMMA_N96(TYPE)                                                            \
    WGMMA("96", TYPE, PLACES_0_TO_31 ", " PLACES_32_TO_47,                         \
          "%48, %49, %50, %51", "%52", "%53", "%54",                               \
          REGISTERS_32(d, 0), REGISTERS_8(d, 32), REGISTERS_8(d, 40))
#define WGMMA_N128(TYPE)                                                           \
    WGMMA("128", TYPE, PLACES_0_TO_31 ", " PLACES_32_TO_63,                        \
          "%64, %65, %66, %67", "%68", "%69", "%70",                               \
          REGISTERS_32(d, 0), REGISTERS_32(d, 32))
#define WGMMA_N192(TYPE)                                                           \
    WGMMA("192", TYPE, PLACES_0_TO_31 ", " PLACES_32_TO_63 ", " PLACES_64_TO_95,   \
          "%96, %97, %98, %99", "%100", "%101", "%102",                            \
          REGISTERS_32(d, 0), REGISTERS_32(d, 32), REGISTERS_32(d, 64))
#define WGMMA_N256(TYPE)                                                           \
    WGMMA("256", TYPE,                                                             \
          PLACES_0_TO_31 ", " PLACES_32_TO_63 ", " PLACES_64_TO_95 ", "            \
          PLACES_96_TO_127, "%128, %129, %130, %131", "%132", "%133", "%134",      \
          REGISTERS_32(d, 0), REGISTERS_32(d, 32),                                 \
          REGISTERS_32(d, 64), REGISTERS_32(d, 96))
// clang-format on

// Starts d (64 x N) = a (64 x 16) * b (16 x N), plus d if it accumulates, with d as in
// wgmma.cuh. Warp w of the warpgroup holds rows 16 w to 16 w + 15 of a. In lane l a[i] has
// two elements, in columns 2 (l % 4) and 2 (l % 4) + 1, plus 8 if i & 2, of row l / 4, plus
// 8 if i & 1: those that d[4 j + i] has of sums next to each other. No register of a may
// be written to before the wait.
template <typename T, Major B_MAJOR, int N>
__device__ __forceinline__ void wgmma_m64k16(
    float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool accumulates
) {
    static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
    static_assert(N == 64 || N == 96 || N == 128 || N == 192 || N == 256);
    constexpr bool IS_HALF = std::is_same_v<T, __half>;
    if constexpr (N == 64 && IS_HALF) WGMMA_N64("f16");
    if constexpr (N == 64 && !IS_HALF) WGMMA_N64("bf16");
    if constexpr (N == 96 && IS_HALF) WGMMA_N96("f16");
    if constexpr (N == 96 && !IS_HALF) WGMMA_N96("bf16");
    if constexpr (N == 128 && IS_HALF) WGMMA_N128("f16");
    if constexpr (N == 128 && !IS_HALF) WGMMA_N128("bf16");
    if constexpr (N == 192 && IS_HALF) WGMMA_N192("f16");
    if constexpr (N == 192 && !IS_HALF) WGMMA_N192("bf16");
    if constexpr (N == 256 && IS_HALF) WGMMA_N256("f16");
    if constexpr (N == 256 && !IS_HALF) WGMMA_N256("bf16");
}

#undef PLACES_0_TO_31
#undef PLACES_32_TO_47
#undef PLACES_32_TO_63
#undef PLACES_64_TO_95
#undef PLACES_96_TO_127
#undef REGISTERS_8
#undef REGISTERS_32
#undef WGMMA
#undef WGMMA_N64
#undef WGMMA_N96
#undef WGMMA_N128
#undef WGMMA_N192
#undef WGMMA_N256

}  // namespace ptx

#endif  // TWIN_EMULATOR
