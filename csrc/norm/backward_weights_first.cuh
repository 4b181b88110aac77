// The first rung's second kernel, of both norms: a thread owns a column, and walks down
// all rows.
//
// It adds up rows by the hundred, and then those sums: along a single chain of
// additions the rounding errors of thousands of rows would pile up.
#pragma once

#include "common/rows.cuh"
#include "common/vec.cuh"

template <typename T>
__global__ void norm_backward_weights_first_kernel(
    T* grad_weight_ptr,     // (n_cols)
    T* grad_bias_ptr,       // (n_cols), or null
    const T* grad_ptr,      // (n_rows, n_cols)
    const T* x_ptr,         // (n_rows, n_cols)
    const float* mean_ptr,  // (n_rows), or null
    const float* rstd_ptr,  // (n_rows)
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t grad_stride_batch,
    int64_t grad_stride_row, int64_t x_stride_batch, int64_t x_stride_row
) {
    // -- tile: a thread owns a column
    const int64_t col = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (col >= n_cols) return;

    // -- accumulate: over all rows
    float weight_sum = 0.0f, bias_sum = 0.0f;
    for (int64_t start = 0; start < n_rows; start += 100) {
        float weight_part = 0.0f, bias_part = 0.0f;
        for (int64_t row = start; row < min(start + 100, n_rows); ++row) {
            const T* const grad_row_ptr =
                grad_ptr +
                row_offset(
                    row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
                );
            const T* const x_row_ptr =
                x_ptr +
                row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row);
            const float grad = to_float(grad_row_ptr[col]);
            const float mean = mean_ptr ? mean_ptr[row] : 0.0f;
            weight_part += grad * (to_float(x_row_ptr[col]) - mean) * rstd_ptr[row];
            bias_part += grad;
        }
        weight_sum += weight_part;
        bias_sum += bias_part;
    }

    // -- store: rounded once
    grad_weight_ptr[col] = from_float<T>(weight_sum);
    if (grad_bias_ptr) grad_bias_ptr[col] = from_float<T>(bias_sum);
}
