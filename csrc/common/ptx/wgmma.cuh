// Inline PTX: the tensor cores of Hopper. The four warps of a warpgroup multiply matrices
// together, straight from shared memory, and do not wait for the result.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "common/ptx/memory.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

// Each thread of the warpgroup gives up its registers beyond this many.
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Each thread of the warpgroup gets this many registers, once others have given up enough.
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// The dimension along which a matrix in shared memory is contiguous: k, or else m or n.
enum class Major { K = 0, MN = 1 };

// Describes a matrix in shared memory to the tensor cores. It lies in boxes whose rows have 128
// bytes, with the swizzle of 128 bytes; the first box begins at a multiple of 1024 bytes, and
// `shared` may lie inside of it. stride_bytes leads from 8 rows to the next 8, leading_bytes
// from a box to the next one along the contiguous dimension (for Major::MN alone).
__device__ __forceinline__ uint64_t
wgmma_descriptor(const void* shared, int leading_bytes, int stride_bytes) {
    constexpr uint64_t SWIZZLE_128_BYTES = uint64_t{1} << 62;
    const auto in_16_bytes = [](uint32_t bytes) {
        return static_cast<uint64_t>((bytes & 0x3ffff) >> 4);
    };
    return SWIZZLE_128_BYTES | in_16_bytes(shared_address(shared)) |
           in_16_bytes(leading_bytes) << 16 | in_16_bytes(stride_bytes) << 32;
}

// The descriptor of what lies so many bytes on: one addition; a new one takes eight.
__device__ __forceinline__ uint64_t wgmma_advance(uint64_t descriptor, int bytes) {
    return descriptor + bytes / 16;
}

// Orders earlier accesses to registers, accumulators among them, before multiplications.
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Closes a group: the multiplications that the warpgroup has started since its last group.
__device__ __forceinline__ void wgmma_commit_group() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most this many of the groups, the newest ones, are under way.
template <int UNFINISHED>
__device__ __forceinline__ void wgmma_wait_group() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(UNFINISHED) : "memory");
}

// The instruction's text has to name every register of d, up to 128 of them, and the type,
// as a literal: hence macros, for the places in the text and for the registers.
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
#define WGMMA(N, TYPE, PLACES, A, B, ACCUMULATES, A_IS_MN, B_IS_MN, ...)           \
    asm volatile(                                                                  \
        "{\n"                                                                      \
        ".reg .pred accumulates;\n"                                                \
        "setp.ne.b32 accumulates, " ACCUMULATES ", 0;\n"                           \
        "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE             \
        " {" PLACES "}, " A ", " B ", accumulates, 1, 1, " A_IS_MN ", " B_IS_MN ";\n" \
        "}\n"                                                                      \
        : __VA_ARGS__                                                              \
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulates)),                      \
          "n"(static_cast<int>(A_MAJOR)), "n"(static_cast<int>(B_MAJOR))           \
    )
#define WGMMA_N64(TYPE)                                                      \
    WGMMA("64", TYPE, PLACES_0_TO_31, "%32", "%33", "%34", "%35", "%36",     \
          REGISTERS_32(d, 0))
#define WGMMA_N128(TYPE)                                                     \
    WGMMA("128", TYPE, PLACES_0_TO_31 ", " PLACES_32_TO_63,                  \
          "%64", "%65", "%66", "%67", "%68",                                 \
          REGISTERS_32(d, 0), REGISTERS_32(d, 32))
#define WGMMA_N192(TYPE)                                                     \
    WGMMA("192", TYPE, PLACES_0_TO_31 ", " PLACES_32_TO_63 ", " PLACES_64_TO_95, \
          "%96", "%97", "%98", "%99", "%100",                                \
          REGISTERS_32(d, 0), REGISTERS_32(d, 32), REGISTERS_32(d, 64))
#define WGMMA_N256(TYPE)                                                     \
    WGMMA("256", TYPE, PLACES_0_TO_31 ", " PLACES_32_TO_63 ", "              \
          PLACES_64_TO_95 ", " PLACES_96_TO_127,                             \
          "%128", "%129", "%130", "%131", "%132",                            \
          REGISTERS_32(d, 0), REGISTERS_32(d, 32),                           \
          REGISTERS_32(d, 64), REGISTERS_32(d, 96))
// clang-format on

// Starts d (64 x N) = a (64 x 16) * b (16 x N), plus d if it accumulates. Warp w of the
// warpgroup holds rows 16 w to 16 w + 15 of d. In lane l d[4 j + i] is the element in row
// l / 4, plus 8 if i & 2, and in column 8 j + 2 (l % 4) + (i & 1).
template <typename T, Major A_MAJOR, Major B_MAJOR, int N>
__device__ __forceinline__ void wgmma_m64k16(
    float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulates
) {
    static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
    static_assert(N == 64 || N == 128 || N == 192 || N == 256);
    constexpr bool IS_HALF = std::is_same_v<T, __half>;
    if constexpr (N == 64 && IS_HALF) WGMMA_N64("f16");
    if constexpr (N == 64 && !IS_HALF) WGMMA_N64("bf16");
    if constexpr (N == 128 && IS_HALF) WGMMA_N128("f16");
    if constexpr (N == 128 && !IS_HALF) WGMMA_N128("bf16");
    if constexpr (N == 192 && IS_HALF) WGMMA_N192("f16");
    if constexpr (N == 192 && !IS_HALF) WGMMA_N192("bf16");
    if constexpr (N == 256 && IS_HALF) WGMMA_N256("f16");
    if constexpr (N == 256 && !IS_HALF) WGMMA_N256("bf16");
}

#undef PLACES_0_TO_31
#undef PLACES_32_TO_63
#undef PLACES_64_TO_95
#undef PLACES_96_TO_127
#undef REGISTERS_8
#undef REGISTERS_32
#undef WGMMA
#undef WGMMA_N64
#undef WGMMA_N128
#undef WGMMA_N192
#undef WGMMA_N256

}  // namespace ptx

#endif  // TWIN_EMULATOR
