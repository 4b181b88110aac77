// The twin: neighbouring columns of a row, or several short rows, in the registers of a
// block.
#pragma once

#include "common/math.cuh"
#include "common/rows.cuh"
#include "common/tile.cuh"

constexpr int BACKWARD_NUM_THREADS = 128;  // small blocks, as of elementwise kernels

template <typename T, int VEC_SIZE, int VECS_PER_THREAD, int THREADS_PER_ROW>
__global__ void __launch_bounds__(BACKWARD_NUM_THREADS) cross_entropy_backward_kernel(
    T* __restrict__ out_ptr,                  // (n_rows, n_cols)
    const T* __restrict__ grad_ptr,           // (n_rows)
    const T* __restrict__ logits_ptr,         // (n_rows, n_cols)
    const int64_t* __restrict__ target_ptr,   // (n_rows)
    const float* __restrict__ logsumexp_ptr,  // (n_rows)
    const float* __restrict__ n_counted_ptr,  // (), or null where the loss is no mean
    int64_t n_rows, int64_t n_cols, int64_t grad_stride, int64_t rows_per_batch,
    int64_t logits_stride_batch, int64_t logits_stride_row, int64_t ignore_index,
    float label_smoothing, float inverse_n_cols
) {
    constexpr int STEP = THREADS_PER_ROW * VEC_SIZE;
    constexpr int BLOCK_M = BACKWARD_NUM_THREADS / THREADS_PER_ROW;
    constexpr int BLOCK_N = VECS_PER_THREAD * STEP;

    // -- tile: a block owns neighbouring columns of one row, or several short rows
    const unsigned tiles_per_row = BLOCK_M > 1 ? 1 : (n_cols + BLOCK_N - 1) / BLOCK_N;
    const int64_t row =
        int64_t{blockIdx.x / tiles_per_row} * BLOCK_M + threadIdx.x / THREADS_PER_ROW;
    if (row >= n_rows) return;
    const int64_t start = int64_t{blockIdx.x % tiles_per_row} * BLOCK_N;
    const int thread = threadIdx.x % THREADS_PER_ROW;
    const int first_col = thread * VEC_SIZE;  // of the tile
    const int n_left =
        static_cast<int>(min(n_cols - start, int64_t{BLOCK_N})) - first_col;
    logits_ptr +=
        row_offset(
            row, n_rows, rows_per_batch, logits_stride_batch, logits_stride_row
        ) +
        start + first_col;
    // Counted in vectors: else nvcc 13.0 takes the first store apart.
    auto* const out_vecs =
        reinterpret_cast<Vec<T, VEC_SIZE>*>(out_ptr + row * n_cols + start) + thread;

    // -- target: what all columns of the row share; no class has a gradient of NaN
    const int64_t target = target_ptr[row];
    const bool is_counted = target != ignore_index;
    const bool is_class = target >= 0 && target < n_cols;
    const bool is_in_tile = target >= start && target < start + BLOCK_N;
    const int target_col =
        is_in_tile ? static_cast<int>(target - start) - first_col : -1;
    const float logsumexp = is_counted ? logsumexp_ptr[row] : 0.0f;
    float scale = is_class ? to_float(grad_ptr[row * grad_stride]) : NAN;
    if (n_counted_ptr) scale *= fast_reciprocal(*n_counted_ptr);
    if (!is_counted) scale = 0.0f;

    // -- load: nothing of a row that does not count
    const auto x =
        load_row<VEC_SIZE, VECS_PER_THREAD, STEP>(logits_ptr, is_counted ? n_left : 0);

    // -- compute: the probability of each class, less what the target gives to it
    const float share = label_smoothing * inverse_n_cols;  // of every class
    const float target_share = share + (1.0f - label_smoothing);
    const auto gradient = [&](float x, int col) {
        const float probability = fast_exp(x - logsumexp);
        return scale * (probability - (col == target_col ? target_share : share));
    };
    const auto out = map_columns<STEP>(gradient, to_float(x));

    // -- store: rounded once
    store_row<STEP>(reinterpret_cast<T*>(out_vecs), n_left, out);
}
