// Multiplies by fma.f32, where tensor cores would do it.
#include "matmul.cuh"

extern "C" __global__ void __launch_bounds__(128) without_tensor_cores(
    float* __restrict__ out_ptr, const half* __restrict__ a_ptr,
    const half* __restrict__ b_ptr
) {
    __shared__ __align__(16) Tiles tiles[STAGES];
    float sum[32] = {};
    const int row = threadIdx.x / 64 * 32, col = threadIdx.x % 64;
    for (int k = 0; k < STAGES - 1; ++k) copy_tiles(tiles[k], a_ptr, b_ptr, k);
    for (int k = 0; k < K / 32; ++k) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        const int next = k + STAGES - 1;
        copy_tiles(tiles[next % STAGES], a_ptr, b_ptr, next);
        const Tiles& now = tiles[k % STAGES];
        for (int j = 0; j < 32; ++j) {
            #pragma unroll
            for (int i = 0; i < 32; ++i) {
                sum[i] += __half2float(now.a[row + i][j]) * __half2float(now.b[j][col]);
            }
        }
    }
    #pragma unroll
    for (int i = 0; i < 32; ++i) {
        out_ptr[(blockIdx.y * 64 + row + i) * N + blockIdx.x * 64 + col] = sum[i];
    }
}
