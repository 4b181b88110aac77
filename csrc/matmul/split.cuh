// A float32 as the sum of two tf32 numbers, which have 11 bits each of its 24.
#pragma once

#include "common/ptx/mma.cuh"

struct SplitFloat {
    float large, small;
};

// Infinities and NaN are the small part of their sum: the large parts are multiplied with both
// of the other operand, of which one may be 0.
__device__ __forceinline__ SplitFloat split_float(float x) {
    constexpr uint32_t KEPT_BITS = 0xffffe000;
    float large = __uint_as_float(ptx::round_to_tf32(x));
    if (!isfinite(large)) {
        large = isfinite(x) ? __uint_as_float(__float_as_uint(x) & KEPT_BITS) : 0.0f;
    }
    return {large, __uint_as_float(ptx::round_to_tf32(x - large))};
}
