// The first rung: a block owns a row, and walks over it twice.
//
// Each pass reads both rows, so every element of grad and y is read twice; the caches save
// some of it.
#pragma once

#include "common/reduce.cuh"
#include "common/rows.cuh"

template <typename T>
__global__ void softmax_backward_first_kernel(
    T* out_ptr,         // (n_rows, n_cols)
    const T* grad_ptr,  // (n_rows, n_cols)
    const T* y_ptr,     // (n_rows, n_cols)
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t grad_stride_batch,
    int64_t grad_stride_row, int64_t y_stride_batch, int64_t y_stride_row
) {
    // -- tile: a block owns a row, a thread every blockDim.x-th column of it
    const int64_t row = blockIdx.x;
    grad_ptr +=
        row_offset(row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row);
    y_ptr += row_offset(row, n_rows, rows_per_batch, y_stride_batch, y_stride_row);
    out_ptr += row * n_cols;

    // -- sum: of the products
    float row_sum = 0.0f;
    for (int64_t col = threadIdx.x; col < n_cols; col += blockDim.x) {
        row_sum += to_float(grad_ptr[col]) * to_float(y_ptr[col]);
    }
    row_sum = block_reduce<FIRST_NUM_THREADS>(row_sum, Sum{});

    // -- store: first the difference, which is exact where the two are nearly the same
    for (int64_t col = threadIdx.x; col < n_cols; col += blockDim.x) {
        const float difference = to_float(grad_ptr[col]) - row_sum;
        out_ptr[col] = from_float<T>(to_float(y_ptr[col]) * difference);
    }
}
