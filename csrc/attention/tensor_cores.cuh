// The third rung: tensor cores multiply, and copies bypass the registers.
//
// A warp has WARP_M queries, and all keys of a tile. What mma.sync leaves of q k^T in a
// thread's registers is what the next one takes as its left operand: probabilities are rounded
// to 16 bits in place, and never see shared memory. cp.async brings v while the scores are
// computed, and the next k while the values are summed up. Only tiles at the ends of what
// queries see are masked; those that no query of a warp sees the warp leaves out.
#pragma once

#include "attention/block_queries.cuh"
#include "attention/fragments.cuh"
#include "attention/scores.cuh"
#include "attention/tiles.cuh"

namespace tensor_cores {
constexpr int NUM_WARPS = 4;
constexpr int NUM_THREADS = NUM_WARPS * WARP_SIZE;
constexpr int BLOCK_N = 64;

// 32 queries share what a warp reads of k and v, if their results fit its registers.
template <int HEAD_DIM>
constexpr int WARP_M = HEAD_DIM <= 128 ? 32 : 16;
template <int HEAD_DIM>
constexpr int BLOCK_M = NUM_WARPS * WARP_M<HEAD_DIM>;

template <typename T, int HEAD_DIM>
struct Shared {
    Tile<T, BLOCK_M<HEAD_DIM>, HEAD_DIM> q;  // in the end the result
    Tile<T, BLOCK_N, HEAD_DIM> k, v;
};
}  // namespace tensor_cores

template <typename T, int HEAD_DIM, bool ARE_PACKED = false>
__global__ void
__launch_bounds__(tensor_cores::NUM_THREADS) attention_tensor_cores_kernel(
    T* __restrict__ out_ptr,      // (n_batches, n_queries, n_heads, head_dim)
    float* __restrict__ lse_ptr,  // (n_batches, n_heads, n_queries)
    const T* __restrict__ q_ptr,  // (n_batches, n_queries, n_heads, head_dim)
    const T* __restrict__ k_ptr,  // (n_batches, n_keys, n_kv_heads, head_dim)
    const T* __restrict__ v_ptr,  // (n_batches, n_keys, n_kv_heads, head_dim)
    int n_heads, int n_kv_heads, int64_t n_queries, int64_t n_keys, int head_dim,
    int64_t out_stride_batch, int64_t out_stride_row, int64_t out_stride_head,
    int64_t q_stride_batch, int64_t q_stride_row, int64_t q_stride_head,
    int64_t k_stride_batch, int64_t k_stride_row, int64_t k_stride_head,
    int64_t v_stride_batch, int64_t v_stride_row, int64_t v_stride_head, float scale,
    float softcap, int64_t window_left, int64_t window_right, int n_sequences,
    const int* __restrict__ q_offsets_ptr, const int* __restrict__ k_offsets_ptr
) {
    using namespace tensor_cores;
    constexpr int WARP_M = tensor_cores::WARP_M<HEAD_DIM>;
    constexpr int BLOCK_M = tensor_cores::BLOCK_M<HEAD_DIM>;
    constexpr int ROWS = WARP_M / 8, SCORES = BLOCK_N / 4;  // of a tile in a thread
    DYNAMIC_SHARED(tiles, 128);
    auto& [q_tile, k_tile, v_tile] = *reinterpret_cast<Shared<T, HEAD_DIM>*>(tiles);

    // -- tile: a block owns BLOCK_M queries of one head, a warp WARP_M of them
    const auto [sequence, head, kv_head, tile_query] =
        BlockQueries::of_block<BLOCK_M, ARE_PACKED>(
            n_heads, n_kv_heads,
            {n_queries, n_keys, n_sequences, q_offsets_ptr, k_offsets_ptr}
        );
    n_queries = sequence.n_queries, n_keys = sequence.n_keys;
    if (ARE_PACKED && tile_query >= n_queries) return;
    const int lane = threadIdx.x % WARP_SIZE;
    const int warp_row = threadIdx.x / WARP_SIZE * WARP_M;
    q_ptr +=
        sequence.q * q_stride_batch + tile_query * q_stride_row + head * q_stride_head;
    k_ptr += sequence.k * k_stride_batch + kv_head * k_stride_head;
    v_ptr += sequence.k * v_stride_batch + kv_head * v_stride_head;
    out_ptr += sequence.q * out_stride_batch + head * out_stride_head;
    lse_ptr += sequence.statistic_of(head, 0);
    const auto visible = [&](int64_t query) {
        return visible_keys(query, n_queries, n_keys, window_left, window_right);
    };
    const int64_t begin = visible(tile_query).first;
    const auto keys_of = [&](int row) {
        const auto [first, end] = visible(tile_query + row);
        return Span{static_cast<int>(first - begin), static_cast<int>(end - begin)};
    };
    k_ptr += begin * k_stride_row;
    v_ptr += begin * v_stride_row;
    const int n_rows = static_cast<int>(min(n_queries - tile_query, int64_t{BLOCK_M}));
    const int n_visible = keys_of(n_rows - 1).end;
    const Span of_first = keys_of(warp_row), of_last = keys_of(warp_row + WARP_M - 1);

    // Where scores are scaled by a positive number and no more, that is left to the exponent.
    const bool is_plain = softcap == 0.0f && scale > 0.0f;
    const float unit = is_plain ? scale : 1.0f, exponent_unit = unit * LOG2_E;

    // -- compute: k of a tile is on its way while the tile before it is multiplied with its
    // values, and v while this one is multiplied with its keys
    const auto copy = [&](auto& tile, const T* ptr, int64_t stride_row, int start) {
        if (start < n_visible) {
            tile.template copy_from<NUM_THREADS>(
                ptr + start * stride_row, stride_row, n_visible - start, head_dim
            );
        }
    };
    q_tile.template copy_from<NUM_THREADS>(q_ptr, q_stride_row, n_rows, head_dim);
    copy(k_tile, k_ptr, k_stride_row, 0);

    float sums[WARP_M / 16][HEAD_DIM / 16][2][4] = {};
    RunningSoftmax<ROWS> softmax;
    for (int start = 0; start < n_visible; start += BLOCK_N) {
        ptx::cp_async_wait_all();
        __syncthreads();
        copy(v_tile, v_ptr, v_stride_row, start);
        const bool is_seen = warp_row < n_rows && start < of_last.end &&
                             start + BLOCK_N > of_first.first;
        const bool is_masked = start < of_last.first || start + BLOCK_N > of_first.end;
        uint32_t p[WARP_M / 16][BLOCK_N / 16][4];
        if (is_seen) {
            float scores[WARP_M / 16][BLOCK_N / 16][2][4] = {};
            #pragma unroll 4  // all would take more registers than there are
            for (int d = 0; d < HEAD_DIM; d += MMA_K) {
                uint32_t q[WARP_M / 16][4];
                for (int i = 0; i < WARP_M / 16; ++i) {
                    q_tile.load_left(q[i], warp_row + i * 16, d);
                }
                #pragma unroll
                for (int j = 0; j < BLOCK_N / 16; ++j) {
                    uint32_t k[4];
                    k_tile.load_right(k, j * 16, d);
                    for (int i = 0; i < WARP_M / 16; ++i) {
                        add_products<T>(scores[i][j], q[i], k);
                    }
                }
            }
            #pragma unroll
            for (int i = 0; i < ROWS * SCORES && !is_plain; ++i) {
                float& score = element(scores, i / SCORES, i % SCORES);
                score = cap(score * scale, softcap);
            }
            #pragma unroll
            for (int i = 0; i < ROWS && is_masked; ++i) {
                const auto [first, end] = keys_of(warp_row + lane / 4 + i * 8);
                for (int j = 0; j < SCORES; ++j) {
                    const int key = start + lane % 4 * 2 + j / 2 * 8 + j % 2;
                    if (first <= key && key < end) continue;
                    element(scores, i, j) = -INFINITY;
                }
            }
            softmax.template add<T>(p, sums, scores, exponent_unit);
        }
        ptx::cp_async_wait_all();
        __syncthreads();
        copy(k_tile, k_ptr, k_stride_row, start + BLOCK_N);
        if (is_seen) {
            #pragma unroll
            for (int j = 0; j < BLOCK_N / 16; ++j) {
                #pragma unroll
                for (int d = 0; d < HEAD_DIM / 16; ++d) {
                    uint32_t v[4];
                    v_tile.load_right_transposed(v, j * 16, d * 16);
                    for (int i = 0; i < WARP_M / 16; ++i) {
                        add_products<T>(sums[i][d], p[i][j], v);
                    }
                }
            }
        }
    }
    ptx::cp_async_wait_all();
    __syncthreads();  // without a tile q may still be on its way

    // -- store: rounded once, by way of shared memory, in vectors; 0 for a query without keys
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const float sum = warp_reduce<4>(softmax.row_sum[i], Sum{});
        const float inverse = 1.0f / sum;
        const int row = warp_row + i * 8 + lane / 4;
        #pragma unroll
        for (int j = 0; j < HEAD_DIM / 8; ++j) {
            const uint32_t out = pack<T>(
                element(sums, i, 2 * j) * inverse, element(sums, i, 2 * j + 1) * inverse
            );
            T* to = q_tile.chunk(row, j) + lane % 4 * 2;
            *reinterpret_cast<uint32_t*>(to) = sum == 0.0f ? 0 : out;
        }
        if (lane % 4 == 0 && row < n_rows) {
            lse_ptr[tile_query + row] =
                finite_origin(softmax.row_max[i]) * unit + logf(sum);
        }
    }
    __syncwarp();
    const bool is_aligned = reinterpret_cast<uintptr_t>(out_ptr) % VEC_BYTES == 0 &&
                            out_stride_row % CHUNK == 0;
    constexpr int ROW_CHUNKS = HEAD_DIM / CHUNK;
    #pragma unroll 4
    for (int i = lane; i < WARP_M * ROW_CHUNKS; i += WARP_SIZE) {
        const int row = i / ROW_CHUNKS, chunk = i % ROW_CHUNKS, col = chunk * CHUNK;
        const int n_valid = warp_row + row < n_rows ? head_dim - col : 0;
        store(
            out_ptr + (tile_query + warp_row + row) * out_stride_row + col,
            load<CHUNK>(q_tile.chunk(warp_row + row, chunk), true, T{}), n_valid,
            is_aligned
        );
    }
}
