// The first rung: attention by its definition, in three launches that leave a matrix of
// n_queries x n_keys float32 in memory for each head.
//
// The first launch writes the scores, the second reads and writes each three times over, and
// the third reads them for every column of the result. For long sequences those bytes are
// far more than q, k, v and out. Sums are those of 32 products each, added up:
// along a single chain of additions the rounding errors of thousands would pile up.
#pragma once

#include "attention/scores.cuh"
#include "common/launch.cuh"
#include "common/reduce.cuh"

namespace first {
constexpr int BLOCK_M = 8;   // rows of a result
constexpr int BLOCK_N = 32;  // and its columns
constexpr int SUMMANDS = 32;
static_assert(BLOCK_M * BLOCK_N == FIRST_NUM_THREADS);

// The element of one of many matrices that a thread computes.
struct Element {
    int64_t batch;
    int64_t head;
    int64_t row;
    int64_t col;

    __device__ static Element of_thread(
        int64_t n_heads, int64_t n_rows, int64_t n_cols
    ) {
        const int64_t n_row_tiles = (n_rows + BLOCK_M - 1) / BLOCK_M;
        const int64_t n_col_tiles = (n_cols + BLOCK_N - 1) / BLOCK_N;
        const int64_t tile = blockIdx.x % (n_row_tiles * n_col_tiles);
        const int64_t matrix = blockIdx.x / (n_row_tiles * n_col_tiles);
        return {
            matrix / n_heads, matrix % n_heads,
            tile / n_col_tiles * BLOCK_M + threadIdx.x / BLOCK_N,
            tile % n_col_tiles * BLOCK_N + threadIdx.x % BLOCK_N
        };
    }
};

// The sum of f(i) over `begin <= i < end`.
template <typename F>
__device__ __forceinline__ float sum_over(int64_t begin, int64_t end, F f) {
    float sum = 0.0f;
    for (int64_t start = begin; start < end; start += SUMMANDS) {
        float part = 0.0f;
        for (int64_t i = start; i < min(start + SUMMANDS, end); ++i) part += f(i);
        sum += part;
    }
    return sum;
}

// The product of two rows whose columns are neighbours.
template <typename T>
__device__ __forceinline__ float dot(const T* a_ptr, const T* b_ptr, int head_dim) {
    return sum_over(0, head_dim, [&](int64_t d) {
        return to_float(a_ptr[d]) * to_float(b_ptr[d]);
    });
}
}  // namespace first

template <typename T>
__global__ void __launch_bounds__(FIRST_NUM_THREADS) attention_scores_first_kernel(
    float* __restrict__ scores_ptr,  // (n_batches, n_heads, n_queries, n_keys)
    const T* __restrict__ q_ptr,     // (n_batches, n_queries, n_heads, head_dim)
    const T* __restrict__ k_ptr,     // (n_batches, n_keys, n_kv_heads, head_dim)
    int n_heads, int n_kv_heads, int64_t n_queries, int64_t n_keys, int head_dim,
    int64_t q_stride_batch, int64_t q_stride_row, int64_t q_stride_head,
    int64_t k_stride_batch, int64_t k_stride_row, int64_t k_stride_head, float scale,
    float softcap, int64_t window_left, int64_t window_right
) {
    using namespace first;

    // -- tile: a block owns BLOCK_M queries and BLOCK_N keys, a thread one of each
    const auto [batch, head, query, key] =
        Element::of_thread(n_heads, n_queries, n_keys);
    if (query >= n_queries || key >= n_keys) return;
    const int64_t kv_head = head / (n_heads / n_kv_heads);
    q_ptr += batch * q_stride_batch + query * q_stride_row + head * q_stride_head;
    k_ptr += batch * k_stride_batch + key * k_stride_row + kv_head * k_stride_head;

    // -- compute: keys that the query does not see have no part in its softmax
    const Keys keys = visible_keys(query, n_queries, n_keys, window_left, window_right);
    float score = -INFINITY;
    if (keys.first <= key && key < keys.end) {
        score = cap(dot(q_ptr, k_ptr, head_dim) * scale, softcap);
    }

    // -- store: in float32
    const int64_t row = (batch * n_heads + head) * n_queries + query;
    scores_ptr[row * n_keys + key] = score;
}

// What T is does not matter here: scores and probabilities are float32 for all dtypes.
template <typename T>
__global__ void __launch_bounds__(FIRST_NUM_THREADS) attention_softmax_first_kernel(
    float* __restrict__ scores_ptr,  // (n_batches * n_heads * n_queries, n_keys)
    float* __restrict__ lse_ptr,     // (n_batches * n_heads * n_queries)
    int64_t n_keys
) {
    // -- tile: a block owns a row, a thread every blockDim.x-th column of it
    const int64_t row = blockIdx.x;
    scores_ptr += row * n_keys;

    // -- max: subtracted below, so that no exponential overflows
    float row_max = -INFINITY;
    for (int64_t key = threadIdx.x; key < n_keys; key += blockDim.x) {
        row_max = fmaxf(row_max, scores_ptr[key]);
    }
    row_max = finite_origin(block_reduce<FIRST_NUM_THREADS>(row_max, Max{}));

    // -- sum: 0 for a query that sees no key
    float row_sum = 0.0f;
    for (int64_t key = threadIdx.x; key < n_keys; key += blockDim.x) {
        row_sum += accurate_exp(scores_ptr[key] - row_max);
    }
    row_sum = block_reduce<FIRST_NUM_THREADS>(row_sum, Sum{});
    const float inverse = row_sum == 0.0f ? 0.0f : 1.0f / row_sum;

    // -- store: probabilities in place of the scores
    for (int64_t key = threadIdx.x; key < n_keys; key += blockDim.x) {
        scores_ptr[key] = accurate_exp(scores_ptr[key] - row_max) * inverse;
    }
    if (threadIdx.x == 0) lse_ptr[row] = row_max + logf(row_sum);
}

template <typename T>
__global__ void __launch_bounds__(FIRST_NUM_THREADS) attention_values_first_kernel(
    T* __restrict__ out_ptr,               // (n_batches, n_queries, n_heads, head_dim)
    const float* __restrict__ scores_ptr,  // (n_batches, n_heads, n_queries, n_keys)
    const T* __restrict__ v_ptr,           // (n_batches, n_keys, n_kv_heads, head_dim)
    int n_heads, int n_kv_heads, int64_t n_queries, int64_t n_keys, int head_dim,
    int64_t out_stride_batch, int64_t out_stride_row, int64_t out_stride_head,
    int64_t v_stride_batch, int64_t v_stride_row, int64_t v_stride_head,
    int64_t window_left, int64_t window_right
) {
    using namespace first;

    // -- tile: a block owns BLOCK_M queries and BLOCK_N columns, a thread one of each
    const auto [batch, head, query, col] =
        Element::of_thread(n_heads, n_queries, head_dim);
    if (query >= n_queries || col >= head_dim) return;
    const int64_t kv_head = head / (n_heads / n_kv_heads);
    const int64_t row = (batch * n_heads + head) * n_queries + query;
    scores_ptr += row * n_keys;
    v_ptr += batch * v_stride_batch + kv_head * v_stride_head + col;
    out_ptr +=
        batch * out_stride_batch + query * out_stride_row + head * out_stride_head;

    // -- compute: only over keys that the query sees, as 0 times inf is NaN
    const Keys keys = visible_keys(query, n_queries, n_keys, window_left, window_right);
    const float sum = sum_over(keys.first, keys.end, [&](int64_t key) {
        return scores_ptr[key] * to_float(v_ptr[key * v_stride_row]);
    });

    // -- store: rounded once
    out_ptr[col] = from_float<T>(sum);
}
