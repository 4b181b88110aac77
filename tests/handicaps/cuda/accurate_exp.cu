// expf, which first brings its argument into a small range, in place of __expf.
#include "sigmoid.cuh"

__device__ __forceinline__ float accurate(float x) {
    return __fdividef(1.0f, 1.0f + expf(-x));
}

extern "C" __global__ void accurate_exp(
    float4* __restrict__ out_ptr, const float4* __restrict__ x_ptr
) {
    const int first = blockIdx.x * 256 + threadIdx.x;
    #pragma unroll
    for (int i = first; i < first + 256; i += 128) {
        out_ptr[i] = map<accurate>(x_ptr[i]);
    }
}
