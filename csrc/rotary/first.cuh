// The first rung: a thread turns one pair, or copies one element behind the pairs.
//
// A thread reads both elements of its pair before it writes them, so that x and out may be
// the same memory. Neighbouring threads own neighbouring pairs.
#pragma once

#include "common/vec.cuh"

template <typename T, typename TableT, bool INTERLEAVED, bool CONJUGATE>
__global__ void rotary_first_kernel(
    T* out_ptr,                 // (batch, seq_len, n_heads, head_dim)
    const T* x_ptr,             // (batch, seq_len, n_heads, head_dim)
    const TableT* cos_ptr,      // (n_positions, n_pairs)
    const TableT* sin_ptr,      // (n_positions, n_pairs)
    const int64_t* offset_ptr,  // (batch), or null
    unsigned n_rows, unsigned seq_len, unsigned n_heads, int head_dim, int n_pairs,
    int64_t n_positions, int64_t out_stride_batch, int64_t out_stride_seq,
    int64_t out_stride_head, int64_t x_stride_batch, int64_t x_stride_seq,
    int64_t x_stride_head, int64_t cos_stride_position
) {
    // -- tile: first the pairs of a row, then its other elements
    const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    const int row_size = head_dim - n_pairs;
    const int64_t row = i / row_size, pair = i % row_size;
    if (row >= n_rows) return;
    const int64_t token = row / n_heads, head = row % n_heads;
    const int64_t batch = token / seq_len, step = token % seq_len;
    out_ptr +=
        batch * out_stride_batch + step * out_stride_seq + head * out_stride_head;
    x_ptr += batch * x_stride_batch + step * x_stride_seq + head * x_stride_head;

    // -- rotate: in float32, rounded once; beyond the tables a position has no angle
    if (pair < n_pairs) {
        const int64_t position = step + (offset_ptr ? offset_ptr[batch] : 0);
        const bool has_angle = 0 <= position && position < n_positions;
        const int64_t entry = position * cos_stride_position + pair;
        const float cos = has_angle ? to_float(cos_ptr[entry]) : NAN;
        float sin = has_angle ? to_float(sin_ptr[entry]) : NAN;
        if (CONJUGATE) sin = -sin;
        const int64_t first_col = INTERLEAVED ? 2 * pair : pair;
        const int64_t second_col = INTERLEAVED ? 2 * pair + 1 : n_pairs + pair;
        const float first = to_float(x_ptr[first_col]);
        const float second = to_float(x_ptr[second_col]);
        out_ptr[first_col] = from_float<T>(first * cos - second * sin);
        out_ptr[second_col] = from_float<T>(second * cos + first * sin);
    }

    // -- copy: an element behind the pairs
    if (pair >= n_pairs) out_ptr[n_pairs + pair] = x_ptr[n_pairs + pair];
}
