// All inline PTX of the project: instructions that CUDA C++ has no function for, under
// names that say what they do. The emulator computes the same with the C library.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

namespace ptx {

// 2^x with a relative error of 2^-22. Results below 2^-126 become 0. The function
// __exp2f spends three more instructions on those.
__device__ __forceinline__ float exp2(float x) {
#ifdef TWIN_EMULATOR
    return std::exp2(x);
#else
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#endif
}

// 1 / x with an error of one unit in the last place. Where x or the result lies below
// 2^-126, the result is inf or 0.
__device__ __forceinline__ float reciprocal(float x) {
#ifdef TWIN_EMULATOR
    return 1.0f / x;
#else
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#endif
}

}  // namespace ptx
