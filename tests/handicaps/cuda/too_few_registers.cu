// Bounds that leave a thread 32 registers, which its part of the row alone would fill.
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(128, 16) too_few_registers(
    float4* __restrict__ out_ptr, const float4* __restrict__ x_ptr, int n_cols
) {
    float4 x[VECTORS];
    const float sum = block_sum(load_row(x, x_ptr, n_cols / 4));
    store_row(out_ptr, x, sum, n_cols / 4);
}
