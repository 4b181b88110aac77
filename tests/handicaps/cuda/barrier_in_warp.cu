// A barrier of the whole block before each shuffle, which concerns one warp alone.
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(128) barrier_in_warp(
    float4* __restrict__ out_ptr, const float4* __restrict__ x_ptr, int n_cols
) {
    __shared__ float sums[4];
    float4 x[VECTORS];
    float sum = load_row(x, x_ptr, n_cols / 4);
    #pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        __syncthreads();
        sum += __shfl_xor_sync(~0u, sum, step);
    }
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = sums[0] + sums[1] + sums[2] + sums[3];
    store_row(out_ptr, x, sum, n_cols / 4);
}
