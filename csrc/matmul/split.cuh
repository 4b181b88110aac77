// A float32 as the sum of two tf32 numbers, which have 11 bits each of its 24.
#pragma once

#include "common/ptx/mma.cuh"

struct SplitFloat {
    float large, small;
};

__device__ __forceinline__ float truncate_to_tf32(float x) {
    return __uint_as_float(__float_as_uint(x) & 0xffffe000);
}

// Infinities and NaN are the small part of their sum: the large parts are multiplied with both
// of the other operand, of which one may be 0. Where rounding would overflow, bits are cut off.
__device__ __forceinline__ SplitFloat split_float(float x) {
    if (!isfinite(x)) return {0.0f, x};
    const float large = __uint_as_float(ptx::round_to_tf32(x));
    if (isfinite(large)) return {large, __uint_as_float(ptx::round_to_tf32(x - large))};
    const float truncated = truncate_to_tf32(x);
    return {truncated, truncate_to_tf32(x - truncated)};
}
