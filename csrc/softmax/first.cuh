// The first rung: a block owns a row, and walks over it three times.
//
// Each pass reads the whole row, so every element is read three times and written once;
// the caches save some of it. Neighbouring threads read neighbouring elements, so that a
// warp's loads are coalesced.
#pragma once

#include "common/math.cuh"
#include "common/reduce.cuh"
#include "common/rows.cuh"

template <typename T>
__global__ void softmax_first_kernel(
    T* out_ptr,      // (n_rows, n_cols)
    const T* x_ptr,  // (n_rows, n_cols)
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t x_stride_batch,
    int64_t x_stride_row
) {
    // -- tile: a block owns a row, a thread every blockDim.x-th column of it
    const int64_t row = blockIdx.x;
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row);
    out_ptr += row * n_cols;

    // -- max: subtracted below, so that no exponential overflows
    float row_max = -INFINITY;
    for (int64_t col = threadIdx.x; col < n_cols; col += blockDim.x) {
        row_max = fmaxf(row_max, to_float(x_ptr[col]));
    }
    row_max = block_reduce<FIRST_NUM_THREADS>(row_max, Max{});

    // -- sum: of the numerators
    float row_sum = 0.0f;
    for (int64_t col = threadIdx.x; col < n_cols; col += blockDim.x) {
        row_sum += fast_exp(to_float(x_ptr[col]) - row_max);
    }
    row_sum = block_reduce<FIRST_NUM_THREADS>(row_sum, Sum{});

    // -- store: the numerators, computed again and divided by their sum
    for (int64_t col = threadIdx.x; col < n_cols; col += blockDim.x) {
        const float numerator = fast_exp(to_float(x_ptr[col]) - row_max);
        out_ptr[col] = from_float<T>(numerator / row_sum);
    }
}
