// What the backward's launches are told of a call.
#pragma once

#include "attention/regimes.cuh"
#include "attention/sequences.cuh"
#include "common/tensor_map_4d.cuh"

// A gradient of these rows, which is contiguous.
inline HeadRows contiguous_like(void* data, const HeadRows& rows) {
    const int64_t row = rows.n_heads * rows.n_cols;
    return {data,        rows.n_batches,    rows.n_rows, rows.n_heads,
            rows.n_cols, rows.n_rows * row, row,         rows.n_cols};
}

// A call, without what the first rung alone needs.
struct BackwardCall {
    void *grad_q, *grad_k, *grad_v;  // contiguous, and like q, k and v
    void* delta;
    const void *grad_lse, *lse;
    HeadRows grad, q, k, v, out;
    float scale;
    float softcap;
    int64_t window_left;
    int64_t window_right;
    Offsets offsets;
    bool deterministic;
    void* sums;  // of grad_q, where blocks add them up in memory; else null

    // How many blocks own n_rows rows each of the gradients of q, or of k and v.
    int64_t n_query_blocks(int64_t n_rows) const {
        return offsets.count_tiles(q.n_batches, q.n_rows, n_rows) * q.n_heads;
    }
    int64_t n_key_blocks(int64_t n_rows) const {
        return offsets.count_tiles(k.n_batches, k.n_rows, n_rows) * k.n_heads;
    }

    // What rung and tile are chosen by.
    AttentionCall described(DType dtype) const {
        constexpr int64_t MOST = int64_t{1} << 30, ROWS = 64;  // of the smallest tiles
        bool has_tensor_maps = true;
        for (const HeadRows& rows :
             {contiguous_like(grad_q, q), contiguous_like(grad_k, k),
              contiguous_like(grad_v, v), grad, q, k, v}) {
            has_tensor_maps = has_tensor_maps && rows.have_tensor_map();
        }
        return {
            .dtype = dtype,
            .n_queries = q.n_rows,
            .head_dim = q.n_cols,
            .is_plain = scale > 0.0f && softcap == 0.0f,
            .counts_in_int = q.n_rows + k.n_rows <= MOST &&
                             n_query_blocks(ROWS) <= MOST && n_key_blocks(ROWS) <= MOST,
            .has_tensor_maps = has_tensor_maps,
            .is_packed = offsets.q != nullptr
        };
    }
};
