// The first rung: a block owns a row, and walks over it twice.
//
// Maximum and sum take a pass each, so every logit is read twice; the caches save some of
// it. The losses are added up by a second launch, cross_entropy_reduce_kernel.
#pragma once

#include "common/math.cuh"
#include "common/reduce.cuh"
#include "common/rows.cuh"

template <typename T>
__global__ void cross_entropy_first_kernel(
    float* logsumexp_ptr,       // (n_rows)
    T* loss_ptr,                // (n_rows), or null
    float* partial_ptr,         // (n_blocks, 2) if the loss is reduced, or null
    const T* logits_ptr,        // (n_rows, n_cols)
    const int64_t* target_ptr,  // (n_rows)
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t logits_stride_batch,
    int64_t logits_stride_row, int64_t ignore_index, float label_smoothing,
    float inverse_n_cols
) {
    // -- tile: a block owns a row, a thread every blockDim.x-th column of it
    const int64_t row = blockIdx.x;
    logits_ptr +=
        row_offset(row, n_rows, rows_per_batch, logits_stride_batch, logits_stride_row);

    // -- target: a row that does not count is not read; no class has a logit of NaN
    const int64_t target = target_ptr[row];
    const bool is_counted = target != ignore_index;
    const bool is_class = is_counted && target >= 0 && target < n_cols;
    const float target_logit = is_class ? to_float(logits_ptr[target]) : NAN;
    const int64_t n_read = is_counted ? n_cols : 0;

    // -- max: subtracted below, so that no exponential overflows
    float row_max = -INFINITY;
    for (int64_t col = threadIdx.x; col < n_read; col += blockDim.x) {
        row_max = fmaxf(row_max, to_float(logits_ptr[col]));
    }
    row_max = block_reduce<FIRST_NUM_THREADS>(row_max, Max{});

    // -- sum: of the exponentials, and of what each logit lacks to the maximum
    const float origin = finite_origin(row_max);
    float row_sum = 0.0f, row_gap = 0.0f;
    for (int64_t col = threadIdx.x; col < n_read; col += blockDim.x) {
        row_sum += fast_exp(to_float(logits_ptr[col]) - origin);
        row_gap += origin - to_float(logits_ptr[col]);
    }
    row_sum = block_reduce<FIRST_NUM_THREADS>(row_sum, Sum{});
    row_gap = block_reduce<FIRST_NUM_THREADS>(row_gap, Sum{});

    // -- loss: without smoothing the gaps, which may be inf, have no part in it
    float loss = logf(row_sum) + (1.0f - label_smoothing) * (origin - target_logit);
    if (label_smoothing > 0.0f) loss += label_smoothing * inverse_n_cols * row_gap;
    if (!is_counted) loss = 0.0f;

    // -- store: each loss, or the loss and whether it counts
    if (threadIdx.x > 0) return;
    logsumexp_ptr[row] = origin + logf(row_sum);
    if (loss_ptr) loss_ptr[row] = from_float<T>(loss);
    if (partial_ptr) partial_ptr[2 * row] = loss, partial_ptr[2 * row + 1] = is_counted;
}
