// The first rung: a block owns a row, and walks over it twice.
//
// Neighbouring threads read neighbouring elements, so that a warp's loads are
// coalesced. The caches save some of what is read again.
#pragma once

#include "common/reduce.cuh"
#include "common/rows.cuh"

template <typename T>
__global__ void rms_norm_first_kernel(
    T* out_ptr,           // (n_rows, n_cols)
    float* rstd_ptr,      // (n_rows)
    const T* x_ptr,       // (n_rows, n_cols)
    const T* weight_ptr,  // (n_cols), or null
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t x_stride_batch,
    int64_t x_stride_row, float eps
) {
    // -- tile: a block owns a row, a thread every blockDim.x-th column of it
    const int64_t row = blockIdx.x;
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row);
    out_ptr += row * n_cols;

    // -- rstd: from the mean of the squares
    float square_sum = 0.0f;
    for (int64_t col = threadIdx.x; col < n_cols; col += blockDim.x) {
        const float x = to_float(x_ptr[col]);
        square_sum += x * x;
    }
    square_sum = block_reduce<FIRST_NUM_THREADS>(square_sum, Sum{});
    const float rstd = rsqrtf(square_sum / n_cols + eps);
    if (threadIdx.x == 0) rstd_ptr[row] = rstd;

    // -- store: rounded once
    for (int64_t col = threadIdx.x; col < n_cols; col += blockDim.x) {
        const float weight = weight_ptr ? to_float(weight_ptr[col]) : 1.0f;
        out_ptr[col] = from_float<T>(to_float(x_ptr[col]) * rstd * weight);
    }
}
