// The last launch of a backward: adds what the blocks have left, in a fixed order.
#pragma once

#include "common/reduce.cuh"

constexpr int SUM_MOST_THREADS = 1024;

template <typename T>
__global__ void __launch_bounds__(SUM_MOST_THREADS) norm_sum_partials_kernel(
    T* __restrict__ grad_weight_ptr,         // (n_cols)
    T* __restrict__ grad_bias_ptr,           // (n_cols), or null
    const float* __restrict__ partials_ptr,  // (1 or 2, n_partials, n_cols)
    int64_t n_partials, int64_t n_cols
) {
    // -- tile: a block owns blockDim.x columns of one of the gradients, a thread every
    // blockDim.y-th partial sum of one of them
    const int64_t col = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    T* const out_ptr = blockIdx.y == 0 ? grad_weight_ptr : grad_bias_ptr;
    partials_ptr += blockIdx.y * n_partials * n_cols + col;

    // -- accumulate: what each thread owns
    float sum = 0.0f;
    if (col < n_cols) {
        for (int64_t i = threadIdx.y; i < n_partials; i += blockDim.y) {
            sum += partials_ptr[i * n_cols];
        }
    }

    // -- reduce: the sums of a column
    sum = column_reduce<SUM_MOST_THREADS>(Vec<float, 1>{sum}, Sum{})[0];

    // -- store: rounded once
    if (threadIdx.y == 0 && col < n_cols) out_ptr[col] = from_float<T>(sum);
}
