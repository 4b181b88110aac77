// The first rung: the five products of the backward by their definition, with two matrices of
// n_queries x n_keys float32 in memory for each head.
//
// The first of the three launches writes the probabilities and the gradients of the scores,
// the others read them for every column of the gradients of q, and of k and v.
#pragma once

#include "attention/first.cuh"

template <typename T>
__global__ void
__launch_bounds__(FIRST_NUM_THREADS) attention_backward_scores_first_kernel(
    float* __restrict__ p_ptr,            // (n_batches, n_heads, n_queries, n_keys)
    float* __restrict__ grad_scores_ptr,  // (n_batches, n_heads, n_queries, n_keys)
    const T* __restrict__ grad_ptr,       // (n_batches, n_queries, n_heads, head_dim)
    const T* __restrict__ q_ptr,          // (n_batches, n_queries, n_heads, head_dim)
    const T* __restrict__ k_ptr,          // (n_batches, n_keys, n_kv_heads, head_dim)
    const T* __restrict__ v_ptr,          // (n_batches, n_keys, n_kv_heads, head_dim)
    const float* __restrict__ lse_ptr,    // (n_batches, n_heads, n_queries)
    const float* __restrict__ delta_ptr,  // (n_batches, n_heads, n_queries)
    int n_heads, int n_kv_heads, int64_t n_queries, int64_t n_keys, int head_dim,
    int64_t grad_stride_batch, int64_t grad_stride_row, int64_t grad_stride_head,
    int64_t q_stride_batch, int64_t q_stride_row, int64_t q_stride_head,
    int64_t k_stride_batch, int64_t k_stride_row, int64_t k_stride_head,
    int64_t v_stride_batch, int64_t v_stride_row, int64_t v_stride_head, float scale,
    float softcap, int64_t window_left, int64_t window_right
) {
    using namespace first;

    // -- tile: a block owns BLOCK_M queries and BLOCK_N keys, a thread one of each
    const auto [batch, head, query, key] =
        Element::of_thread(n_heads, n_queries, n_keys);
    if (query >= n_queries || key >= n_keys) return;
    const int64_t kv_head = head / (n_heads / n_kv_heads);
    grad_ptr +=
        batch * grad_stride_batch + query * grad_stride_row + head * grad_stride_head;
    q_ptr += batch * q_stride_batch + query * q_stride_row + head * q_stride_head;
    k_ptr += batch * k_stride_batch + key * k_stride_row + kv_head * k_stride_head;
    v_ptr += batch * v_stride_batch + key * v_stride_row + kv_head * v_stride_head;
    const int64_t row = (batch * n_heads + head) * n_queries + query;

    // -- compute: keys that the query does not see have no part in its softmax
    const Keys keys = visible_keys(query, n_queries, n_keys, window_left, window_right);
    float p = 0.0f, grad_score = 0.0f;
    if (keys.first <= key && key < keys.end) {
        const float score = cap(dot(q_ptr, k_ptr, head_dim) * scale, softcap);
        p = accurate_exp(score - finite_origin(lse_ptr[row]));
        grad_score = p * (dot(grad_ptr, v_ptr, head_dim) - delta_ptr[row]) *
                     cap_derivative(score, softcap);
    }

    // -- store: in float32
    p_ptr[row * n_keys + key] = p;
    grad_scores_ptr[row * n_keys + key] = grad_score;
}

template <typename T>
__global__ void
__launch_bounds__(FIRST_NUM_THREADS) attention_backward_queries_first_kernel(
    T* __restrict__ grad_q_ptr,  // (n_batches, n_queries, n_heads, head_dim)
    const float* __restrict__ grad_scores_ptr,  // (n_batches, n_heads, n_queries,
                                                // n_keys)
    const T* __restrict__ k_ptr,  // (n_batches, n_keys, n_kv_heads, head_dim)
    int n_heads, int n_kv_heads, int64_t n_queries, int64_t n_keys, int head_dim,
    int64_t k_stride_batch, int64_t k_stride_row, int64_t k_stride_head, float scale,
    int64_t window_left, int64_t window_right
) {
    using namespace first;

    // -- tile: a block owns BLOCK_M queries and BLOCK_N columns, a thread one of each
    const auto [batch, head, query, col] =
        Element::of_thread(n_heads, n_queries, head_dim);
    if (query >= n_queries || col >= head_dim) return;
    const int64_t kv_head = head / (n_heads / n_kv_heads);
    grad_scores_ptr += ((batch * n_heads + head) * n_queries + query) * n_keys;
    k_ptr += batch * k_stride_batch + kv_head * k_stride_head + col;

    // -- compute: only over keys that the query sees, as 0 times inf is NaN
    const Keys keys = visible_keys(query, n_queries, n_keys, window_left, window_right);
    const float sum = sum_over(keys.first, keys.end, [&](int64_t key) {
        return grad_scores_ptr[key] * to_float(k_ptr[key * k_stride_row]);
    });

    // -- store: rounded once
    const int64_t row = (batch * n_queries + query) * n_heads + head;
    grad_q_ptr[row * head_dim + col] = from_float<T>(sum * scale);
}

template <typename T>
__global__ void
__launch_bounds__(FIRST_NUM_THREADS) attention_backward_keys_first_kernel(
    T* __restrict__ grad_k_ptr,       // (n_batches, n_keys, n_kv_heads, head_dim)
    T* __restrict__ grad_v_ptr,       // (n_batches, n_keys, n_kv_heads, head_dim)
    const float* __restrict__ p_ptr,  // (n_batches, n_heads, n_queries, n_keys)
    const float* __restrict__ grad_scores_ptr,  // (n_batches, n_heads, n_queries,
                                                // n_keys)
    const T* __restrict__ grad_ptr,  // (n_batches, n_queries, n_heads, head_dim)
    const T* __restrict__ q_ptr,     // (n_batches, n_queries, n_heads, head_dim)
    int n_heads, int n_kv_heads, int64_t n_queries, int64_t n_keys, int head_dim,
    int64_t grad_stride_batch, int64_t grad_stride_row, int64_t grad_stride_head,
    int64_t q_stride_batch, int64_t q_stride_row, int64_t q_stride_head, float scale,
    int64_t window_left, int64_t window_right
) {
    using namespace first;

    // -- tile: a block owns BLOCK_M keys and BLOCK_N columns, a thread one of each
    const auto [batch, kv_head, key, col] =
        Element::of_thread(n_kv_heads, n_keys, head_dim);
    if (key >= n_keys || col >= head_dim) return;
    const int n_sharing = n_heads / n_kv_heads;
    grad_ptr += batch * grad_stride_batch + col;
    q_ptr += batch * q_stride_batch + col;

    // -- compute: over all heads that share the key, and the queries that see it
    const Queries queries =
        seeing_queries(key, n_queries, n_keys, window_left, window_right);
    float grad_k = 0.0f, grad_v = 0.0f;
    for (int64_t head = kv_head * n_sharing; head < (kv_head + 1) * n_sharing; ++head) {
        const int64_t first_row = (batch * n_heads + head) * n_queries;
        grad_k += sum_over(queries.first, queries.end, [&](int64_t query) {
            return grad_scores_ptr[(first_row + query) * n_keys + key] *
                   to_float(q_ptr[query * q_stride_row + head * q_stride_head]);
        });
        grad_v += sum_over(queries.first, queries.end, [&](int64_t query) {
            return p_ptr[(first_row + query) * n_keys + key] *
                   to_float(
                       grad_ptr[query * grad_stride_row + head * grad_stride_head]
                   );
        });
    }

    // -- store: rounded once
    const int64_t row = (batch * n_keys + key) * n_kv_heads + kv_head;
    grad_k_ptr[row * head_dim + col] = from_float<T>(grad_k * scale);
    grad_v_ptr[row * head_dim + col] = from_float<T>(grad_v);
}
