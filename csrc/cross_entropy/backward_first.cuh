// The first rung: a block owns a row, and a thread every blockDim.x-th column of it.
//
// A gradient asks nothing of the other columns, as the forward has left the logsumexp.
#pragma once

#include "common/math.cuh"
#include "common/rows.cuh"
#include "common/vec.cuh"

template <typename T>
__global__ void cross_entropy_backward_first_kernel(
    T* out_ptr,                  // (n_rows, n_cols)
    const T* grad_ptr,           // (n_rows)
    const T* logits_ptr,         // (n_rows, n_cols)
    const int64_t* target_ptr,   // (n_rows)
    const float* logsumexp_ptr,  // (n_rows)
    const float* n_counted_ptr,  // (), or null where the loss is no mean
    int64_t n_rows, int64_t n_cols, int64_t grad_stride, int64_t rows_per_batch,
    int64_t logits_stride_batch, int64_t logits_stride_row, int64_t ignore_index,
    float label_smoothing, float inverse_n_cols
) {
    // -- tile: a block owns a row
    const int64_t row = blockIdx.x;
    logits_ptr +=
        row_offset(row, n_rows, rows_per_batch, logits_stride_batch, logits_stride_row);
    out_ptr += row * n_cols;

    // -- target: what all columns of the row share; no class has a gradient of NaN
    const int64_t target = target_ptr[row];
    const bool is_counted = target != ignore_index;
    const bool is_class = target >= 0 && target < n_cols;
    const float logsumexp = logsumexp_ptr[row];
    float scale = is_class ? to_float(grad_ptr[row * grad_stride]) : NAN;
    if (n_counted_ptr) scale /= *n_counted_ptr;

    // -- store: the probability of each class, less what the target gives to it; 0 in a
    // row that does not count, which is not read
    const float share = label_smoothing * inverse_n_cols;  // of every class
    const float target_share = share + (1.0f - label_smoothing);
    for (int64_t col = threadIdx.x; col < n_cols; col += blockDim.x) {
        float out = 0.0f;
        if (is_counted) {
            const float probability = fast_exp(to_float(logits_ptr[col]) - logsumexp);
            out = scale * (probability - (col == target ? target_share : share));
        }
        out_ptr[col] = from_float<T>(out);
    }
}
