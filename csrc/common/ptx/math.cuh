// Inline PTX: arithmetic for which CUDA C++ has no function. All inline PTX is in this folder.
#pragma once

#include <cuda_runtime.h>

#ifdef TWIN_EMULATOR
#include "emulated_ptx.h"  // functions of the same names
#else

#include <cstdint>

namespace ptx {

// 2^x with a relative error of 2^-22. Results below 2^-126 become 0; __exp2f spends three
// more instructions on those.
__device__ __forceinline__ float exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// The bits of a float. They are free, as a cast's are; but a compiler may move a cast of what
// tensor cores compute up before the wait for it, and does not move this.
__device__ __forceinline__ int bits_of(float x) {
    int bits;
    asm volatile("mov.b32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

// 1 / x with an error of one unit in the last place. Where x or the result lies below
// 2^-126, the result is inf or 0.
__device__ __forceinline__ float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// tanh(x) with a relative error of 2^-11; beyond 9 or so the result is 1.
__device__ __forceinline__ float tanh(float x) {
    float result;
    asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// The larger of two numbers, and NaN if either is NaN, which fmaxf would drop.
__device__ __forceinline__ float max_or_nan(float x, float y) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
}

// All 64 bits of a product. The compiler turns the same product in C++ into one more
// addition, or into one multiplication for each half.
__device__ __forceinline__ uint64_t multiply_wide(uint32_t x, uint32_t y) {
    uint64_t result;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(result) : "r"(x), "r"(y));
    return result;
}

}  // namespace ptx

#endif  // TWIN_EMULATOR
