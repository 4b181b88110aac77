// The second rung: two launches, and no matrix of scores in memory. Each computes the scores
// anew, tile by tile, and the probabilities from them and lse.
//
// A block of the first launch owns keys, and walks over the queries that see them; one of the
// second owns queries, and walks over the keys that they see. So every sum stays in the
// registers of one thread, and no atomic addition makes its order a matter of chance, at the
// price of seven products in place of five. Tiles come from the L2, two at a time, and FMA is
// what a block waits for. This is the kernel for float32, for good.
#pragma once

#include "attention/block_keys.cuh"
#include "attention/block_queries.cuh"
#include "attention/float_products.cuh"

template <
    typename T, int HEAD_DIM, bool ARE_PACKED = false,
    int NUM_THREADS = tiled::BACKWARD_THREADS,
    int MIN_BLOCKS = tiled::BACKWARD_BLOCKS<HEAD_DIM>>
__global__ void
__launch_bounds__(NUM_THREADS, MIN_BLOCKS) attention_backward_keys_tiled_kernel(
    T* __restrict__ grad_k_ptr,           // (n_batches, n_keys, n_kv_heads, head_dim)
    T* __restrict__ grad_v_ptr,           // (n_batches, n_keys, n_kv_heads, head_dim)
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
    float softcap, int64_t window_left, int64_t window_right, int n_sequences,
    const int* __restrict__ q_offsets_ptr, const int* __restrict__ k_offsets_ptr
) {
    using namespace tiled;
    constexpr int BLOCK_N = OWN_ROWS, BLOCK_M = OTHER_ROWS<HEAD_DIM>;
    constexpr int QUERIES =
        BLOCK_M / THREADS_PER_ROW;  // whose scores a thread computes
    DYNAMIC_SHARED(memory, 16);
    auto& [k_or_v, q_or_grad, p, grad_scores] =
        *reinterpret_cast<KeysShared<HEAD_DIM>*>(memory);

    // -- tile: a block owns BLOCK_N keys of one head of k and v, a thread the scores of ROWS
    // of them with QUERIES queries, and vectors of their gradients
    const auto [sequence, kv_head, tile_key] = BlockKeys::of_block<BLOCK_N, ARE_PACKED>(
        n_heads, n_kv_heads,
        {n_queries, n_keys, n_sequences, q_offsets_ptr, k_offsets_ptr}
    );
    n_queries = sequence.n_queries, n_keys = sequence.n_keys;
    if (ARE_PACKED && tile_key >= n_keys) return;
    q_ptr += sequence.q * q_stride_batch, grad_ptr += sequence.q * grad_stride_batch;
    k_ptr += sequence.k * k_stride_batch, v_ptr += sequence.k * v_stride_batch;
    const int row = threadIdx.x / THREADS_PER_ROW * ROWS;
    const int query = threadIdx.x % THREADS_PER_ROW, col = query * VEC_SIZE;
    k_ptr += tile_key * k_stride_row + kv_head * k_stride_head;
    v_ptr += tile_key * v_stride_row + kv_head * v_stride_head;
    const int n_rows = static_cast<int>(min(n_keys - tile_key, int64_t{BLOCK_N}));
    const auto queries_of = [&](int64_t key) {
        return seeing_queries(key, n_queries, n_keys, window_left, window_right);
    };
    const Queries of_first = queries_of(tile_key);
    const Queries of_last = queries_of(min(tile_key + BLOCK_N, n_keys) - 1);

    // -- compute: over all heads that share the keys, and the queries that see any of them
    GradVecs<HEAD_DIM> grad_k = {}, grad_v = {};
    const int n_sharing = n_heads / n_kv_heads;
    const int64_t n_tiles = (of_last.end - of_first.first + BLOCK_M - 1) / BLOCK_M;
    for (int64_t tile = 0; tile < n_tiles * n_sharing; ++tile) {
        const int64_t head = kv_head * n_sharing + tile / n_tiles;
        const int64_t start = of_first.first + tile % n_tiles * BLOCK_M;
        const int64_t statistic = sequence.statistic_of(head, start);
        const int n_left = static_cast<int>(min(of_last.end - start, int64_t{BLOCK_M}));
        const bool is_masked = start < of_last.first || start + BLOCK_M > of_first.end;
        const auto seen_of = [&](int i) {
            return SeenInTile<BLOCK_M>{queries_of(tile_key + row + i), start};
        };
        const T* q_tile = q_ptr + start * q_stride_row + head * q_stride_head;
        const T* grad_tile =
            grad_ptr + start * grad_stride_row + head * grad_stride_head;

        // The gradients of probabilities wait where those of the scores will be.
        copy_tile<NUM_THREADS>(k_or_v, v_ptr, v_stride_row, n_rows, head_dim);
        copy_tile<NUM_THREADS>(q_or_grad, grad_tile, grad_stride_row, n_left, head_dim);
        __syncthreads();
        float grad_p[ROWS][QUERIES] = {};
        multiply_rows(grad_p, k_or_v, q_or_grad, row, query);
        for (int i = 0; i < ROWS * QUERIES; ++i) {
            const int r = i / QUERIES, j = i % QUERIES;
            grad_scores[row + r][query + j * THREADS_PER_ROW] = grad_p[r][j];
        }
        __syncthreads();

        // Probabilities are those of the forward: exp(score - lse).
        copy_tile<NUM_THREADS>(k_or_v, k_ptr, k_stride_row, n_rows, head_dim);
        copy_tile<NUM_THREADS>(q_or_grad, q_tile, q_stride_row, n_left, head_dim);
        __syncthreads();
        float scores[ROWS][QUERIES] = {};
        multiply_rows(scores, k_or_v, q_or_grad, row, query);
        #pragma unroll
        for (int j = 0; j < QUERIES; ++j) {
            const int tile_query = query + j * THREADS_PER_ROW;
            const bool is_query = tile_query < n_left;
            const float lse =
                is_query ? finite_origin(lse_ptr[statistic + tile_query]) : 0.0f;
            const float delta = is_query ? delta_ptr[statistic + tile_query] : 0.0f;
            #pragma unroll
            for (int i = 0; i < ROWS; ++i) {
                const bool is_seen = !is_masked || seen_of(i).contains(tile_query);
                const float score = cap(scores[i][j] * scale, softcap);
                const float weight = is_seen ? exponential<T>(score - lse) : 0.0f;
                float& grad_score = grad_scores[row + i][tile_query];
                p[row + i][tile_query] = weight;
                grad_score =
                    weight * (grad_score - delta) * cap_derivative(score, softcap);
            }
        }
        __syncwarp();  // a half-warp's rows are its own
        add_weighted_rows(grad_k, grad_scores, q_or_grad, row, col, is_masked, seen_of);
        __syncthreads();
        copy_tile<NUM_THREADS>(q_or_grad, grad_tile, grad_stride_row, n_left, head_dim);
        __syncthreads();
        add_weighted_rows(grad_v, p, q_or_grad, row, col, is_masked, seen_of);
        __syncthreads();
    }

    // -- store: rounded once; 0 for a key that no query sees
    const int64_t out_row = (sequence.first_key + tile_key) * n_kv_heads + kv_head;
    const int64_t out_stride_row = int64_t{n_kv_heads} * head_dim;
    grad_k_ptr += out_row * head_dim;
    grad_v_ptr += out_row * head_dim;
    store_grads(grad_k_ptr, out_stride_row, grad_k, scale, n_rows, row, col, head_dim);
    store_grads(grad_v_ptr, out_stride_row, grad_v, 1.0f, n_rows, row, col, head_dim);
}

template <
    typename T, int HEAD_DIM, bool ARE_PACKED = false,
    int NUM_THREADS = tiled::BACKWARD_THREADS,
    int MIN_BLOCKS = tiled::BACKWARD_BLOCKS<HEAD_DIM>>
__global__ void
__launch_bounds__(NUM_THREADS, MIN_BLOCKS) attention_backward_queries_tiled_kernel(
    T* __restrict__ grad_q_ptr,           // (n_batches, n_queries, n_heads, head_dim)
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
    float softcap, int64_t window_left, int64_t window_right, int n_sequences,
    const int* __restrict__ q_offsets_ptr, const int* __restrict__ k_offsets_ptr
) {
    using namespace tiled;
    constexpr int BLOCK_M = OWN_ROWS, BLOCK_N = OTHER_ROWS<HEAD_DIM>;
    constexpr int KEYS = BLOCK_N / THREADS_PER_ROW;  // whose scores a thread computes
    DYNAMIC_SHARED(memory, 16);
    auto& [q_or_grad, k_or_v, grad_scores] =
        *reinterpret_cast<QueriesShared<HEAD_DIM>*>(memory);

    // -- tile: a block owns BLOCK_M queries of one head, a thread the scores of ROWS of them
    // with KEYS keys, and vectors of their gradients
    const auto [sequence, head, kv_head, tile_query] =
        BlockQueries::of_block<BLOCK_M, ARE_PACKED>(
            n_heads, n_kv_heads,
            {n_queries, n_keys, n_sequences, q_offsets_ptr, k_offsets_ptr}
        );
    n_queries = sequence.n_queries, n_keys = sequence.n_keys;
    if (ARE_PACKED && tile_query >= n_queries) return;
    q_ptr += sequence.q * q_stride_batch, grad_ptr += sequence.q * grad_stride_batch;
    k_ptr += sequence.k * k_stride_batch, v_ptr += sequence.k * v_stride_batch;
    const int row = threadIdx.x / THREADS_PER_ROW * ROWS;
    const int key = threadIdx.x % THREADS_PER_ROW, col = key * VEC_SIZE;
    const int n_rows = static_cast<int>(min(n_queries - tile_query, int64_t{BLOCK_M}));
    grad_ptr += tile_query * grad_stride_row + head * grad_stride_head;
    q_ptr += tile_query * q_stride_row + head * q_stride_head;
    k_ptr += kv_head * k_stride_head;
    v_ptr += kv_head * v_stride_head;
    const auto keys_of = [&](int64_t query) {
        return visible_keys(query, n_queries, n_keys, window_left, window_right);
    };
    const Keys of_first = keys_of(tile_query);
    const Keys of_last = keys_of(min(tile_query + BLOCK_M, n_queries) - 1);
    float lse[ROWS], delta[ROWS];
    for (int i = 0; i < ROWS; ++i) {
        const int64_t statistic = sequence.statistic_of(head, tile_query + row + i);
        lse[i] = row + i < n_rows ? finite_origin(lse_ptr[statistic]) : 0.0f;
        delta[i] = row + i < n_rows ? delta_ptr[statistic] : 0.0f;
    }

    // -- compute: over the keys that any of the queries sees
    GradVecs<HEAD_DIM> grad_q = {};
    for (int64_t start = of_first.first; start < of_last.end; start += BLOCK_N) {
        const int64_t n_left = of_last.end - start;
        const bool is_masked = start < of_last.first || start + BLOCK_N > of_first.end;
        const auto seen_of = [&](int i) {
            return SeenInTile<BLOCK_N>{keys_of(tile_query + row + i), start};
        };

        // The gradients of probabilities wait where those of the scores will be.
        copy_tile<NUM_THREADS>(q_or_grad, grad_ptr, grad_stride_row, n_rows, head_dim);
        copy_tile<NUM_THREADS>(
            k_or_v, v_ptr + start * v_stride_row, v_stride_row, n_left, head_dim
        );
        __syncthreads();
        float grad_p[ROWS][KEYS] = {};
        multiply_rows(grad_p, q_or_grad, k_or_v, row, key);
        for (int i = 0; i < ROWS * KEYS; ++i) {
            const int r = i / KEYS, j = i % KEYS;
            grad_scores[row + r][key + j * THREADS_PER_ROW] = grad_p[r][j];
        }
        __syncthreads();

        // Probabilities are those of the forward: exp(score - lse).
        copy_tile<NUM_THREADS>(q_or_grad, q_ptr, q_stride_row, n_rows, head_dim);
        copy_tile<NUM_THREADS>(
            k_or_v, k_ptr + start * k_stride_row, k_stride_row, n_left, head_dim
        );
        __syncthreads();
        float scores[ROWS][KEYS] = {};
        multiply_rows(scores, q_or_grad, k_or_v, row, key);
        #pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            SeenInTile<BLOCK_N> seen;
            if (is_masked) seen = seen_of(i);
            #pragma unroll
            for (int j = 0; j < KEYS; ++j) {
                const int tile_key = key + j * THREADS_PER_ROW;
                const float score = cap(scores[i][j] * scale, softcap);
                const float p =
                    seen.contains(tile_key) ? exponential<T>(score - lse[i]) : 0.0f;
                float& grad_score = grad_scores[row + i][tile_key];
                grad_score =
                    p * (grad_score - delta[i]) * cap_derivative(score, softcap);
            }
        }
        __syncwarp();  // a half-warp's rows are its own
        add_weighted_rows(grad_q, grad_scores, k_or_v, row, col, is_masked, seen_of);
        __syncthreads();
    }

    // -- store: rounded once; 0 for a query that sees no key
    grad_q_ptr += ((sequence.first_query + tile_query) * n_heads + head) * head_dim;
    const int64_t out_stride_row = int64_t{n_heads} * head_dim;
    store_grads(grad_q_ptr, out_stride_row, grad_q, scale, n_rows, row, col, head_dim);
}
