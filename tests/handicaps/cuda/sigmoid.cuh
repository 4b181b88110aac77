// What the sigmoids have in common.
#pragma once

// F of each of four numbers.
template <float (*F)(float)>
__device__ __forceinline__ float4 map(float4 x) {
    return {F(x.x), F(x.y), F(x.z), F(x.w)};
}

__device__ __forceinline__ float sigmoid_of(float x) {
    return __fdividef(1.0f, 1.0f + __expf(-x));
}
