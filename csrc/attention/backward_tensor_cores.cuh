// The third rung: tensor cores multiply, and copies bypass the registers.
//
// What mma.sync leaves of scores and their gradients in the registers of a warp, whose keys or
// queries are the rows of all its products, is what the next one takes as its left operand,
// rounded to 16 bits in place. cp.async brings a tile while another is multiplied. Only tiles
// at the ends of what is seen are masked, and a warp leaves out those that its rows do not see.
// Beyond 128 columns registers are few: half of the warps sum up grad_k, the others grad_v.
#pragma once

#include "attention/block_keys.cuh"
#include "attention/block_queries.cuh"
#include "attention/tile_products.cuh"

template <
    typename T, int HEAD_DIM, bool ARE_PACKED = false,
    int NUM_THREADS = tensor_cores::KEYS_THREADS<HEAD_DIM>>
__global__ void
__launch_bounds__(NUM_THREADS) attention_backward_keys_tensor_cores_kernel(
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
    using namespace tensor_cores;
    constexpr int BLOCK_M = QUERIES_AT_A_TIME<HEAD_DIM>, BLOCK_N = BLOCK_KEYS;
    constexpr int WARP_N = WARP_KEYS, GRADS = GRADS_PER_WARP<HEAD_DIM>;
    DYNAMIC_SHARED(tiles, 128);
    auto& [k_tile, v_tile, q_tile, grad_tile, lse, delta] =
        *reinterpret_cast<KeysShared<T, HEAD_DIM>*>(tiles);

    // -- tile: a block owns BLOCK_N keys of one head of k and v, a warp WARP_N of them
    const auto [sequence, kv_head, tile_key] = BlockKeys::of_block<BLOCK_N, ARE_PACKED>(
        n_heads, n_kv_heads,
        {n_queries, n_keys, n_sequences, q_offsets_ptr, k_offsets_ptr}
    );
    n_queries = sequence.n_queries, n_keys = sequence.n_keys;
    if (ARE_PACKED && tile_key >= n_keys) return;
    q_ptr += sequence.q * q_stride_batch, grad_ptr += sequence.q * grad_stride_batch;
    k_ptr += sequence.k * k_stride_batch, v_ptr += sequence.k * v_stride_batch;
    const int warp = threadIdx.x / WARP_SIZE, warp_row = warp * WARP_N % BLOCK_N;
    const bool has_grad_v = GRADS == 2 || warp * WARP_N < BLOCK_N;
    const bool has_grad_k = GRADS == 2 || !has_grad_v;
    const int n_rows = static_cast<int>(min(n_keys - tile_key, int64_t{BLOCK_N}));
    const int n_sharing = n_heads / n_kv_heads;
    const auto seeing = [&](int64_t key) {
        return seeing_queries(key, n_queries, n_keys, window_left, window_right);
    };
    const int64_t begin = seeing(tile_key).first;
    const auto queries_of = [&](int row) {
        return Span::from(seeing(tile_key + row), begin);
    };
    const int64_t head = kv_head * n_sharing;
    q_ptr += begin * q_stride_row + head * q_stride_head;
    grad_ptr += begin * grad_stride_row + head * grad_stride_head;
    k_ptr += tile_key * k_stride_row + kv_head * k_stride_head;
    v_ptr += tile_key * v_stride_row + kv_head * v_stride_head;
    const int n_seeing = queries_of(n_rows - 1).end;
    const int n_tiles = (n_seeing + BLOCK_M - 1) / BLOCK_M;  // of each head
    const Span of_first = queries_of(warp_row),
               of_last = queries_of(warp_row + WARP_N - 1);

    // -- compute: over all heads that share the keys, and the queries that see any of them;
    // q of a tile is on its way while grad is multiplied, and the next grad while q is
    const auto copy = [&](auto& tile, auto& row, const T* ptr, const float* row_ptr,
                          int64_t stride_row, int64_t stride_head, int i) {
        if (i >= n_sharing * n_tiles) return;
        const int i_head = i / n_tiles, start = i % n_tiles * BLOCK_M;
        ptr += start * stride_row + i_head * stride_head;
        row_ptr += sequence.statistic_of(head + i_head, begin + start);
        const int n_left = n_seeing - start;
        tile.template copy_from<NUM_THREADS>(ptr, stride_row, n_left, head_dim);
        copy_row(row, row_ptr, n_left);
    };
    k_tile.template copy_from<NUM_THREADS>(k_ptr, k_stride_row, n_rows, head_dim);
    v_tile.template copy_from<NUM_THREADS>(v_ptr, v_stride_row, n_rows, head_dim);
    copy(grad_tile, delta, grad_ptr, delta_ptr, grad_stride_row, grad_stride_head, 0);

    float sums[GRADS][WARP_N / 16][HEAD_DIM / 16][2][4] = {};
    auto &grad_k = sums[0], &grad_v = sums[GRADS - 1];
    for (int i = 0; i < n_sharing * n_tiles; ++i) {
        const int start = i % n_tiles * BLOCK_M;
        const bool is_seen = warp_row < n_rows && start < of_last.end &&
                             start + BLOCK_M > of_first.first;
        const bool is_masked = start < of_last.first || start + BLOCK_M > of_first.end;
        ptx::cp_async_wait_all();
        __syncthreads();
        copy(q_tile, lse, q_ptr, lse_ptr, q_stride_row, q_stride_head, i);
        float scores[WARP_N / 16][BLOCK_M / 16][2][4],
            grad_scores[WARP_N / 16][BLOCK_M / 16][2][4] = {};
        if (is_seen && has_grad_k) {
            multiply_rows<T>(grad_scores, v_tile, grad_tile, warp_row);
        }
        ptx::cp_async_wait_all();
        __syncthreads();
        uint32_t p[WARP_N / 16][BLOCK_M / 16][4], factors[WARP_N / 16][BLOCK_M / 16][4];
        if (is_seen) {
            multiply_rows<T>(scores, k_tile, q_tile, warp_row);
            differentiate_softmax(
                scores, grad_scores, scale, softcap,
                [&](int, int col) { return finite_origin(lse[col]); },
                [&](int, int col) { return delta[col]; }, is_masked,
                [&](int row) { return Span::from(queries_of(warp_row + row), start); }
            );
            round_to_operand<T>(p, scores);
            round_to_operand<T>(factors, grad_scores);
            if (has_grad_v) add_weighted_rows(grad_v, p, grad_tile);
        }
        __syncthreads();
        copy(
            grad_tile, delta, grad_ptr, delta_ptr, grad_stride_row, grad_stride_head,
            i + 1
        );
        if (is_seen && has_grad_k) add_weighted_rows(grad_k, factors, q_tile);
    }
    ptx::cp_async_wait_all();
    __syncthreads();  // without a tile k and v may still be on their way

    // -- store: rounded once, by way of shared memory; 0 for a key that no query sees
    const auto store = [&](T* ptr, auto& grads, float factor, auto& tile) {
        ptr += ((sequence.first_key + tile_key) * n_kv_heads + kv_head) * head_dim;
        const int64_t stride_row = int64_t{n_kv_heads} * head_dim;
        store_rows(ptr, stride_row, grads, factor, tile, warp_row, n_rows, head_dim);
    };
    if (has_grad_k) store(grad_k_ptr, grad_k, scale, k_tile);
    if (has_grad_v) store(grad_v_ptr, grad_v, 1.0f, v_tile);
}

template <
    typename T, int HEAD_DIM, bool ARE_PACKED = false,
    int NUM_THREADS = tensor_cores::QUERIES_THREADS>
__global__ void
__launch_bounds__(NUM_THREADS) attention_backward_queries_tensor_cores_kernel(
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
    using namespace tensor_cores;
    constexpr int BLOCK_M = BLOCK_QUERIES<HEAD_DIM>, BLOCK_N = KEYS_AT_A_TIME<HEAD_DIM>;
    constexpr int WARP_M = WARP_QUERIES<HEAD_DIM>, ROWS = WARP_M / 8;  // in a thread
    DYNAMIC_SHARED(tiles, 128);
    auto& [q_tile, grad_tile, k_tile, v_tile] =
        *reinterpret_cast<QueriesShared<T, HEAD_DIM>*>(tiles);

    // -- tile: a block owns BLOCK_M queries of one head, a warp WARP_M of them
    const auto [sequence, head, kv_head, tile_query] =
        BlockQueries::of_block<BLOCK_M, ARE_PACKED>(
            n_heads, n_kv_heads,
            {n_queries, n_keys, n_sequences, q_offsets_ptr, k_offsets_ptr}
        );
    n_queries = sequence.n_queries, n_keys = sequence.n_keys;
    if (ARE_PACKED && tile_query >= n_queries) return;
    q_ptr += sequence.q * q_stride_batch, grad_ptr += sequence.q * grad_stride_batch;
    k_ptr += sequence.k * k_stride_batch, v_ptr += sequence.k * v_stride_batch;
    const int lane = threadIdx.x % WARP_SIZE;
    const int warp_row = threadIdx.x / WARP_SIZE * WARP_M;
    const int n_rows = static_cast<int>(min(n_queries - tile_query, int64_t{BLOCK_M}));
    const auto visible = [&](int64_t query) {
        return visible_keys(query, n_queries, n_keys, window_left, window_right);
    };
    const int64_t begin = visible(tile_query).first;
    const auto keys_of = [&](int row) {
        return Span::from(visible(tile_query + row), begin);
    };
    q_ptr += tile_query * q_stride_row + head * q_stride_head;
    grad_ptr += tile_query * grad_stride_row + head * grad_stride_head;
    k_ptr += begin * k_stride_row + kv_head * k_stride_head;
    v_ptr += begin * v_stride_row + kv_head * v_stride_head;
    const int n_visible = keys_of(n_rows - 1).end;
    const Span of_first = keys_of(warp_row), of_last = keys_of(warp_row + WARP_M - 1);
    float lse[ROWS], delta[ROWS];
    for (int i = 0; i < ROWS; ++i) {
        const int row = warp_row + lane / 4 + i * 8;
        const int64_t statistic = sequence.statistic_of(head, tile_query + row);
        lse[i] = row < n_rows ? finite_origin(lse_ptr[statistic]) : 0.0f;
        delta[i] = row < n_rows ? delta_ptr[statistic] : 0.0f;
    }

    // -- compute: k of a tile is on its way while v is multiplied, and the next v while k is
    const auto copy = [&](auto& tile, const T* ptr, int64_t stride_row, int start) {
        if (start < n_visible) {
            tile.template copy_from<NUM_THREADS>(
                ptr + start * stride_row, stride_row, n_visible - start, head_dim
            );
        }
    };
    q_tile.template copy_from<NUM_THREADS>(q_ptr, q_stride_row, n_rows, head_dim);
    grad_tile.template copy_from<NUM_THREADS>(
        grad_ptr, grad_stride_row, n_rows, head_dim
    );
    copy(v_tile, v_ptr, v_stride_row, 0);

    float grad_q[WARP_M / 16][HEAD_DIM / 16][2][4] = {};
    for (int start = 0; start < n_visible; start += BLOCK_N) {
        const bool is_seen = warp_row < n_rows && start < of_last.end &&
                             start + BLOCK_N > of_first.first;
        const bool is_masked = start < of_last.first || start + BLOCK_N > of_first.end;
        ptx::cp_async_wait_all();
        __syncthreads();
        copy(k_tile, k_ptr, k_stride_row, start);
        float scores[WARP_M / 16][BLOCK_N / 16][2][4],
            grad_scores[WARP_M / 16][BLOCK_N / 16][2][4];
        if (is_seen) multiply_rows<T>(grad_scores, grad_tile, v_tile, warp_row);
        ptx::cp_async_wait_all();
        __syncthreads();
        copy(v_tile, v_ptr, v_stride_row, start + BLOCK_N);
        if (is_seen) {
            multiply_rows<T>(scores, q_tile, k_tile, warp_row);
            differentiate_softmax(
                scores, grad_scores, scale, softcap,
                [&](int row, int) { return lse[row]; },
                [&](int row, int) { return delta[row]; }, is_masked,
                [&](int row) { return Span::from(keys_of(warp_row + row), start); }
            );
            uint32_t factors[WARP_M / 16][BLOCK_N / 16][4];
            round_to_operand<T>(factors, grad_scores);
            add_weighted_rows(grad_q, factors, k_tile);
        }
    }
    ptx::cp_async_wait_all();
    __syncthreads();  // without a tile q may still be on its way

    // -- store: rounded once, by way of shared memory; 0 for a query that sees no key
    grad_q_ptr += ((sequence.first_query + tile_query) * n_heads + head) * head_dim;
    store_rows(
        grad_q_ptr, int64_t{n_heads} * head_dim, grad_q, scale, q_tile, warp_row,
        n_rows, head_dim
    );
}
