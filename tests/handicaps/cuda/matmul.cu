// A matrix product, as it should be: on tensor cores, with two copies ahead.
#include "matmul.cuh"

extern "C" __global__ void __launch_bounds__(128) matmul(
    float* __restrict__ out_ptr, const half* __restrict__ a_ptr,
    const half* __restrict__ b_ptr
) {
    __shared__ __align__(16) Tiles tiles[STAGES];
    Accumulator sum;
    for (int k = 0; k < STAGES - 1; ++k) copy_tiles(tiles[k], a_ptr, b_ptr, k);
    for (int k = 0; k < K / 32; ++k) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        const int next = k + STAGES - 1;
        copy_tiles(tiles[next % STAGES], a_ptr, b_ptr, next);
        sum.add_product(tiles[k % STAGES]);
    }
    sum.store(out_ptr);
}
