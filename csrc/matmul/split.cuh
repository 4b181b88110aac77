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
// Selections, as branches would come between multiplications.
__device__ __forceinline__ SplitFloat split_float(float x) {
    const float rounded = __uint_as_float(ptx::round_to_tf32(x));
    const bool is_rounded = isfinite(rounded);
    const float instead = isfinite(x) ? truncate_to_tf32(x) : 0.0f;
    const float large = is_rounded ? rounded : instead;
    const float rest = x - large;
    const float rounded_rest = __uint_as_float(ptx::round_to_tf32(rest));
    return {large, is_rounded ? rounded_rest : truncate_to_tf32(rest)};
}
