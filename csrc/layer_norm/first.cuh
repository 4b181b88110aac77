// The first rung: a block owns a row, and walks over it three times.
//
// Neighbouring threads read neighbouring elements, so that a warp's loads are
// coalesced. The caches save some of what is read again.
#pragma once

#include "common/reduce.cuh"
#include "common/rows.cuh"

template <typename T>
__global__ void layer_norm_first_kernel(
    T* out_ptr,           // (n_rows, n_cols)
    float* mean_ptr,      // (n_rows)
    float* rstd_ptr,      // (n_rows)
    const T* x_ptr,       // (n_rows, n_cols)
    const T* weight_ptr,  // (n_cols), or null
    const T* bias_ptr,    // (n_cols), or null
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t x_stride_batch,
    int64_t x_stride_row, float eps
) {
    // -- tile: a block owns a row, a thread every blockDim.x-th column of it
    const int64_t row = blockIdx.x;
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row);
    out_ptr += row * n_cols;

    // -- mean: of the row
    float sum = 0.0f;
    for (int64_t col = threadIdx.x; col < n_cols; col += blockDim.x) {
        sum += to_float(x_ptr[col]);
    }
    const float mean = block_reduce<FIRST_NUM_THREADS>(sum, Sum{}) / n_cols;

    // -- variance: of the differences, which a mean far from zero costs no digits
    float square_sum = 0.0f;
    for (int64_t col = threadIdx.x; col < n_cols; col += blockDim.x) {
        const float difference = to_float(x_ptr[col]) - mean;
        square_sum += difference * difference;
    }
    const float variance = block_reduce<FIRST_NUM_THREADS>(square_sum, Sum{}) / n_cols;
    const float rstd = rsqrtf(variance + eps);
    if (threadIdx.x == 0) mean_ptr[row] = mean, rstd_ptr[row] = rstd;

    // -- store: rounded once
    for (int64_t col = threadIdx.x; col < n_cols; col += blockDim.x) {
        const float weight = weight_ptr ? to_float(weight_ptr[col]) : 1.0f;
        const float bias = bias_ptr ? to_float(bias_ptr[col]) : 0.0f;
        const float x_hat = (to_float(x_ptr[col]) - mean) * rstd;
        out_ptr[col] = from_float<T>(x_hat * weight + bias);
    }
}
