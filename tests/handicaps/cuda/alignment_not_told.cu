// Four neighbouring stores through a float*, which may begin at any multiple of 4.
#include "sigmoid.cuh"

extern "C" __global__ void alignment_not_told(
    float* __restrict__ out_ptr, const float4* __restrict__ x_ptr
) {
    const int first = blockIdx.x * 256 + threadIdx.x;
    #pragma unroll
    for (int i = first; i < first + 256; i += 128) {
        const float4 y = map<sigmoid_of>(x_ptr[i]);
        out_ptr[4 * i + 0] = y.x;
        out_ptr[4 * i + 1] = y.y;
        out_ptr[4 * i + 2] = y.z;
        out_ptr[4 * i + 3] = y.w;
    }
}
