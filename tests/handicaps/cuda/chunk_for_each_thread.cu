// A thread takes 32 bytes that lie together: a warp's loads leave gaps.
#include "sigmoid.cuh"

extern "C" __global__ void chunk_for_each_thread(
    float4* __restrict__ out_ptr, const float4* __restrict__ x_ptr
) {
    const int first = (blockIdx.x * 128 + threadIdx.x) * 2;
    #pragma unroll
    for (int i = first; i < first + 2; ++i) {
        out_ptr[i] = map<sigmoid_of>(x_ptr[i]);
    }
}
