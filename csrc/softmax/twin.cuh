// The twin: a row stays in registers, so that every element is read once.
//
// THREADS_PER_ROW threads hold VECS_PER_THREAD vectors each, which they read by accesses of
// 16 bytes. The pairs of maximum and sum go from thread to thread, not the row.
#pragma once

#include "common/math.cuh"
#include "common/reduce.cuh"
#include "common/rows.cuh"
#include "common/tile.cuh"

// The bounds ask for 1024 threads on a multiprocessor, so for 64 registers at most: left
// alone, ptxas takes up to 80 for rows that are read element by element.
template <
    typename T, int VEC_SIZE, int VECS_PER_THREAD, int THREADS_PER_ROW,
    int NUM_THREADS = threads_per_block(THREADS_PER_ROW)>
__global__ void __launch_bounds__(NUM_THREADS, 1024 / NUM_THREADS) softmax_kernel(
    T* __restrict__ out_ptr,      // (n_rows, n_cols)
    const T* __restrict__ x_ptr,  // (n_rows, n_cols)
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t x_stride_batch,
    int64_t x_stride_row
) {
    constexpr int STEP = THREADS_PER_ROW * VEC_SIZE;

    // -- tile: a block owns one long row or several short ones; a thread owns the vector
    // at first_col and every STEP columns from there
    const int rows_per_block = blockDim.x / THREADS_PER_ROW;
    const int64_t row =
        int64_t{blockIdx.x} * rows_per_block + threadIdx.x / THREADS_PER_ROW;
    const int first_col = threadIdx.x % THREADS_PER_ROW * VEC_SIZE;
    const int n_left = row < n_rows ? static_cast<int>(n_cols) - first_col : 0;
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row) +
             first_col;
    out_ptr += row * n_cols + first_col;

    // -- load: columns past the end become -inf, which exp maps to 0
    const auto x =
        to_float(load_row<VEC_SIZE, VECS_PER_THREAD, STEP>(x_ptr, n_left, -INFINITY));

    // -- max: subtracted below, so that no exponential overflows
    const float row_max = block_reduce<THREADS_PER_ROW>(reduce(x, Max{}), Max{});

    // -- sum: of the numerators
    const auto numerator = map([&](float x) { return fast_exp(x - row_max); }, x);
    const float row_sum =
        block_reduce<THREADS_PER_ROW>(reduce(numerator, Sum{}), Sum{});

    // -- store: one division for the row, one multiplication for every element
    const float inverse_sum = 1.0f / row_sum;
    store_row<STEP>(out_ptr, n_left, numerator * inverse_sum);
}
