// The first rung: a block owns a row of grad_x, and walks over grad and x twice. The
// gradients of weight and bias are norm_backward_weights_first_kernel's.
#pragma once

#include "common/reduce.cuh"
#include "common/rows.cuh"

template <typename T>
__global__ void layer_norm_backward_first_kernel(
    T* grad_x_ptr,          // (n_rows, n_cols)
    const T* grad_ptr,      // (n_rows, n_cols)
    const T* x_ptr,         // (n_rows, n_cols)
    const float* mean_ptr,  // (n_rows)
    const float* rstd_ptr,  // (n_rows)
    const T* weight_ptr,    // (n_cols), or null
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t grad_stride_batch,
    int64_t grad_stride_row, int64_t x_stride_batch, int64_t x_stride_row
) {
    // -- tile: a block owns a row, a thread every blockDim.x-th column of it
    const int64_t row = blockIdx.x;
    grad_ptr +=
        row_offset(row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row);
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row);
    grad_x_ptr += row * n_cols;

    // -- reduce: to the means of g and g * x_hat
    const float mean = mean_ptr[row], rstd = rstd_ptr[row];
    float g_sum = 0.0f, product_sum = 0.0f;
    for (int64_t col = threadIdx.x; col < n_cols; col += blockDim.x) {
        const float weight = weight_ptr ? to_float(weight_ptr[col]) : 1.0f;
        const float g = to_float(grad_ptr[col]) * weight;
        g_sum += g;
        product_sum += g * ((to_float(x_ptr[col]) - mean) * rstd);
    }
    const float mean_g = block_reduce<FIRST_NUM_THREADS>(g_sum, Sum{}) / n_cols;
    const float mean_product =
        block_reduce<FIRST_NUM_THREADS>(product_sum, Sum{}) / n_cols;

    // -- store: rounded once
    for (int64_t col = threadIdx.x; col < n_cols; col += blockDim.x) {
        const float weight = weight_ptr ? to_float(weight_ptr[col]) : 1.0f;
        const float g = to_float(grad_ptr[col]) * weight;
        const float x_hat = (to_float(x_ptr[col]) - mean) * rstd;
        const float grad_x = rstd * (g - mean_g - x_hat * mean_product);
        grad_x_ptr[col] = from_float<T>(grad_x);
    }
}
