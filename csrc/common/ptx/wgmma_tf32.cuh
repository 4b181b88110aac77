// Inline PTX: multiplications of tf32 by Hopper's tensor cores; wgmma.cuh has the rest.
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
#define PLACES_32_TO_63 \
    "%32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, " \
    "%56, %57, %58, %59, %60, %61, %62, %63"
#define PLACES_64_TO_127 \
    "%64, %65, %66, %67, %68, %69, %70, %71, " \
    "%72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, " \
    "%88, %89, %90, %91, %92, %93, %94, %95, " \
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
#define PLACES_0_TO_63 PLACES_0_TO_31 ", " PLACES_32_TO_63
#define PLACES_0_TO_127 PLACES_0_TO_63 ", " PLACES_64_TO_127
#define SUMS_64 REGISTERS_32(d, 0)
#define SUMS_128 SUMS_64, REGISTERS_32(d, 32)
#define SUMS_256 SUMS_128, REGISTERS_32(d, 64), REGISTERS_32(d, 96)
#define LEFT_IN_SHARED "l"(a)
#define LEFT_IN_REGISTERS                                                          \
    "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])),                        \
    "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3]))
#define WGMMA(N, PLACES, A, B, ACCUMULATES, SUMS, LEFT)                            \
    asm volatile(                                                                  \
        "{\n"                                                                      \
        ".reg .pred accumulates;\n"                                                \
        "setp.ne.b32 accumulates, " ACCUMULATES ", 0;\n"                           \
        "wgmma.mma_async.sync.aligned.m64n" N "k8.f32.tf32.tf32"                   \
        " {" PLACES "}, " A ", " B ", accumulates, 1, 1;\n"                        \
        "}\n"                                                                      \
        : SUMS                                                                     \
        : LEFT, "l"(b), "r"(static_cast<int>(accumulates))                         \
    )
// clang-format on

// Starts d (64 x N) = a (64 x 8) * b (8 x N), plus d if it accumulates, with d as in wgmma.cuh.
// Matrices in shared memory are contiguous along k, as they must be. The lowest 13 bits of an
// element are ignored: nothing is rounded here.
template <int N>
__device__ __forceinline__ void wgmma_m64k8(
    float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulates
) {
    static_assert(N == 64 || N == 128 || N == 256);
    // clang-format off
    if constexpr (N == 64)
        WGMMA("64", PLACES_0_TO_31, "%32", "%33", "%34", SUMS_64, LEFT_IN_SHARED);
    if constexpr (N == 128)
        WGMMA("128", PLACES_0_TO_63, "%64", "%65", "%66", SUMS_128, LEFT_IN_SHARED);
    if constexpr (N == 256)
        WGMMA("256", PLACES_0_TO_127, "%128", "%129", "%130", SUMS_256, LEFT_IN_SHARED);
    // clang-format on
}

// The same of a in registers. Warp w of the warpgroup holds rows 16 w to 16 w + 15 of it. In lane
// l a[i] is the element in row l / 4, plus 8 if i & 1, and in column l % 4, plus 4 if i & 2. No
// register of a may be written to before the wait.
template <int N>
__device__ __forceinline__ void wgmma_m64k8(
    float (&d)[N / 2], const float (&a)[4], uint64_t b, bool accumulates
) {
    static_assert(N == 64 || N == 128 || N == 256);
    // clang-format off
    if constexpr (N == 64)
        WGMMA("64", PLACES_0_TO_31, "{%32, %33, %34, %35}", "%36", "%37",
              SUMS_64, LEFT_IN_REGISTERS);
    if constexpr (N == 128)
        WGMMA("128", PLACES_0_TO_63, "{%64, %65, %66, %67}", "%68", "%69",
              SUMS_128, LEFT_IN_REGISTERS);
    if constexpr (N == 256)
        WGMMA("256", PLACES_0_TO_127, "{%128, %129, %130, %131}", "%132", "%133",
              SUMS_256, LEFT_IN_REGISTERS);
    // clang-format on
}

#undef PLACES_0_TO_31
#undef PLACES_32_TO_63
#undef PLACES_64_TO_127
#undef PLACES_0_TO_63
#undef PLACES_0_TO_127
#undef REGISTERS_8
#undef REGISTERS_32
#undef SUMS_64
#undef SUMS_128
#undef SUMS_256
#undef LEFT_IN_SHARED
#undef LEFT_IN_REGISTERS
#undef WGMMA

}  // namespace ptx

#endif  // TWIN_EMULATOR
