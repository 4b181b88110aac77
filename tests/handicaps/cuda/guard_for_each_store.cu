// Each of four neighbouring stores has a condition of its own.
#include "sigmoid.cuh"

extern "C" __global__ void guard_for_each_store(
    float* __restrict__ out_ptr, const float4* __restrict__ x_ptr, int n_elements
) {
    const int first = blockIdx.x * 256 + threadIdx.x;
    #pragma unroll
    for (int i = first; i < first + 256; i += 128) {
        const float4 y = map<sigmoid_of>(x_ptr[i]);
        if (4 * i + 0 < n_elements) out_ptr[4 * i + 0] = y.x;
        if (4 * i + 1 < n_elements) out_ptr[4 * i + 1] = y.y;
        if (4 * i + 2 < n_elements) out_ptr[4 * i + 2] = y.z;
        if (4 * i + 3 < n_elements) out_ptr[4 * i + 3] = y.w;
    }
}
