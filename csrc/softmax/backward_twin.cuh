// The twin: rows of grad and y stay in registers, as softmax_kernel holds x.
#pragma once

#include "common/reduce.cuh"
#include "common/rows.cuh"
#include "common/tile.cuh"

template <
    typename T, int VEC_SIZE, int VECS_PER_THREAD, int THREADS_PER_ROW,
    int NUM_THREADS = threads_per_block(THREADS_PER_ROW)>
__global__ void
__launch_bounds__(NUM_THREADS, 1024 / NUM_THREADS) softmax_backward_kernel(
    T* __restrict__ out_ptr,         // (n_rows, n_cols)
    const T* __restrict__ grad_ptr,  // (n_rows, n_cols)
    const T* __restrict__ y_ptr,     // (n_rows, n_cols)
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t grad_stride_batch,
    int64_t grad_stride_row, int64_t y_stride_batch, int64_t y_stride_row
) {
    constexpr int STEP = THREADS_PER_ROW * VEC_SIZE;

    // -- tile: a block owns one long row or several short ones; a thread owns the vector
    // at first_col and every STEP columns from there
    const int rows_per_block = blockDim.x / THREADS_PER_ROW;
    const int64_t row =
        int64_t{blockIdx.x} * rows_per_block + threadIdx.x / THREADS_PER_ROW;
    const int first_col = threadIdx.x % THREADS_PER_ROW * VEC_SIZE;
    const int n_left = row < n_rows ? static_cast<int>(n_cols) - first_col : 0;
    grad_ptr +=
        row_offset(row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row) +
        first_col;
    y_ptr += row_offset(row, n_rows, rows_per_batch, y_stride_batch, y_stride_row) +
             first_col;
    out_ptr += row * n_cols + first_col;

    // -- load: columns past the end become 0, which adds nothing to the sum
    const auto grad =
        to_float(load_row<VEC_SIZE, VECS_PER_THREAD, STEP>(grad_ptr, n_left));
    const auto y = to_float(load_row<VEC_SIZE, VECS_PER_THREAD, STEP>(y_ptr, n_left));

    // -- sum: of the products
    const float row_sum = block_reduce<THREADS_PER_ROW>(reduce(grad * y, Sum{}), Sum{});

    // -- store: first the difference, which is exact where the two are nearly the same
    store_row<STEP>(out_ptr, n_left, y * (grad - row_sum));
}
