// The first of two launches for rows too long for a block or a cluster: it finds the
// means of g * x_hat and of g in every row.
#pragma once

#include "common/rows.cuh"
#include "norm/rows.cuh"

constexpr int ROWS_NUM_THREADS = 1024;
constexpr int ROWS_ELEMENTS_PER_THREAD = 8;

template <typename T, int VEC_SIZE, bool HAS_MEAN>
__global__ void __launch_bounds__(ROWS_NUM_THREADS) norm_backward_rows_kernel(
    float* __restrict__ row_means_ptr,   // (NUM_SUMS, n_rows)
    const T* __restrict__ grad_ptr,      // (n_rows, n_cols)
    const T* __restrict__ x_ptr,         // (n_rows, n_cols)
    const float* __restrict__ mean_ptr,  // (n_rows), or null
    const float* __restrict__ rstd_ptr,  // (n_rows)
    const T* __restrict__ weight_ptr,    // (n_cols), or null
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t grad_stride_batch,
    int64_t grad_stride_row, int64_t x_stride_batch, int64_t x_stride_row
) {
    constexpr int VECS = ROWS_ELEMENTS_PER_THREAD / VEC_SIZE;
    constexpr int STEP = ROWS_NUM_THREADS * VEC_SIZE;
    constexpr int BLOCK_N = STEP * VECS;

    // -- tile: a block owns one row and walks over it in tiles of BLOCK_N columns
    const int64_t row = blockIdx.x;
    grad_ptr +=
        row_offset(row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row);
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row);
    const float n = static_cast<float>(n_cols);

    // -- reduce: with x - mean in place of x_hat, whose factor rstd the whole row
    // shares
    const float mean = HAS_MEAN ? mean_ptr[row] : 0.0f;
    Vec<float, NUM_SUMS<HAS_MEAN>> sums{};
    for (int64_t col = threadIdx.x * VEC_SIZE; col < n_cols; col += BLOCK_N) {
        const int64_t n_left = n_cols - col;
        const auto grad =
            to_float(load_row<VEC_SIZE, VECS, STEP>(grad_ptr + col, n_left));
        const auto x = to_float(load_row<VEC_SIZE, VECS, STEP>(x_ptr + col, n_left));
        const auto weight =
            to_float(load_weight<VEC_SIZE, VECS, STEP>(weight_ptr, col, n_left, 1.0f));
        const auto g = grad * weight;
        sums[0] = reduce(g * (x - mean), Sum{}, sums[0]);
        if constexpr (HAS_MEAN) sums[1] = reduce(g, Sum{}, sums[1]);
    }
    sums = block_reduce<ROWS_NUM_THREADS>(sums, Sum{});

    // -- store: for the launch that follows
    if (threadIdx.x == 0) {
        row_means_ptr[row] = sums[0] * rstd_ptr[row] / n;
        if constexpr (HAS_MEAN) row_means_ptr[n_rows + row] = sums[1] / n;
    }
}
