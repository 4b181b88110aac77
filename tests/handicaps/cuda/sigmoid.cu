// 1 / (1 + exp(-x)), as it should be: 16 bytes at a time, approximate functions.
#include "sigmoid.cuh"

extern "C" __global__ void sigmoid(
    float4* __restrict__ out_ptr, const float4* __restrict__ x_ptr
) {
    const int first = blockIdx.x * 256 + threadIdx.x;
    #pragma unroll
    for (int i = first; i < first + 256; i += 128) {
        out_ptr[i] = map<sigmoid_of>(x_ptr[i]);
    }
}
