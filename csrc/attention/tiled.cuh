// The second rung: one launch, and no matrix of scores in memory. Softmax goes along with the
// products, tile of keys by tile of keys.
//
// A query's largest score so far, the sum of its exponentials, and the sum of the values that
// they weigh stay in registers. Where a tile raises the maximum, both sums are scaled down to
// the new one: the result is that of softmax over the whole row. A block reads k and v once
// for BLOCK_M queries, so that memory is hardly used, and FMA is what it waits for. Tiles that
// none of its queries sees are not read. This is the kernel for float32, for good.
#pragma once

#include "attention/block_queries.cuh"
#include "attention/float_tiles.cuh"
#include "common/reduce.cuh"

template <typename T, int HEAD_DIM, bool ARE_PACKED = false>
__global__ void
__launch_bounds__(tiled::NUM_THREADS<HEAD_DIM>, 2) attention_tiled_kernel(
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
    using namespace tiled;
    constexpr int BLOCK_M = tiled::BLOCK_M<HEAD_DIM>,
                  BLOCK_N = tiled::BLOCK_N<HEAD_DIM>;
    constexpr int NUM_THREADS = tiled::NUM_THREADS<HEAD_DIM>;
    constexpr int KEYS = BLOCK_N / THREADS_PER_ROW;  // whose scores a thread computes
    constexpr int COL_STEP = THREADS_PER_ROW * VEC_SIZE;
    constexpr int COL_VECS = HEAD_DIM / COL_STEP;  // of the result in a thread
    DYNAMIC_SHARED(memory, 16);
    auto& shared = *reinterpret_cast<Shared<HEAD_DIM>*>(memory);

    // -- tile: a block owns BLOCK_M queries of one head, a thread the scores of ROWS of them
    // with KEYS keys, and COL_VECS vectors of their results
    const auto [sequence, head, kv_head, tile_query] =
        BlockQueries::of_block<BLOCK_M, ARE_PACKED>(
            n_heads, n_kv_heads,
            {n_queries, n_keys, n_sequences, q_offsets_ptr, k_offsets_ptr}
        );
    n_queries = sequence.n_queries, n_keys = sequence.n_keys;
    if (ARE_PACKED && tile_query >= n_queries) return;
    const int row = threadIdx.x / THREADS_PER_ROW * ROWS;
    const int key = threadIdx.x % THREADS_PER_ROW, col = key * VEC_SIZE;
    q_ptr +=
        sequence.q * q_stride_batch + tile_query * q_stride_row + head * q_stride_head;
    k_ptr += sequence.k * k_stride_batch + kv_head * k_stride_head;
    v_ptr += sequence.k * v_stride_batch + kv_head * v_stride_head;
    out_ptr += sequence.q * out_stride_batch + head * out_stride_head;
    lse_ptr += sequence.statistic_of(head, 0);
    const auto keys_of = [&](int64_t query) {
        return visible_keys(query, n_queries, n_keys, window_left, window_right);
    };
    const Keys of_first = keys_of(tile_query);
    const Keys of_last = keys_of(min(tile_query + BLOCK_M, n_queries) - 1);

    // -- compute: over the keys that any of the queries sees
    copy_tile<NUM_THREADS>(
        shared.q, q_ptr, q_stride_row, n_queries - tile_query, head_dim
    );
    Vec<float, VEC_SIZE> sums[ROWS][COL_VECS] = {};
    float row_max[ROWS], row_sum[ROWS];
    for (int i = 0; i < ROWS; ++i) row_max[i] = -INFINITY, row_sum[i] = 0.0f;
    for (int64_t start = of_first.first; start < of_last.end; start += BLOCK_N) {
        const int64_t n_left = of_last.end - start;
        const bool is_masked = start < of_last.first || start + BLOCK_N > of_first.end;

        // Scores of keys that are THREADS_PER_ROW apart: a half-warp reads neighbouring rows.
        copy_tile<NUM_THREADS>(
            shared.k_or_v, k_ptr + start * k_stride_row, k_stride_row, n_left, head_dim
        );
        __syncthreads();
        float scores[ROWS][KEYS] = {};
        for (int begin = 0; begin < HEAD_DIM; begin += SUMMANDS) {
            float parts[ROWS][KEYS] = {};
            #pragma unroll 1
            for (int d = begin; d < begin + SUMMANDS; d += VEC_SIZE) {
                Vec<float, VEC_SIZE> q[ROWS], k[KEYS];
                for (int i = 0; i < ROWS; ++i) {
                    q[i] = load<VEC_SIZE>(&shared.q[row + i][d], true, 0.0f);
                }
                for (int j = 0; j < KEYS; ++j) {
                    const float* k_row = shared.k_or_v[key + j * THREADS_PER_ROW];
                    k[j] = load<VEC_SIZE>(k_row + d, true, 0.0f);
                }
                #pragma unroll
                for (int i = 0; i < ROWS * KEYS * VEC_SIZE; ++i) {
                    const int r = i / VEC_SIZE / KEYS, j = i / VEC_SIZE % KEYS;
                    parts[r][j] += q[r][i % VEC_SIZE] * k[j][i % VEC_SIZE];
                }
            }
            #pragma unroll
            for (int i = 0; i < ROWS * KEYS; ++i) {
                scores[i / KEYS][i % KEYS] += parts[i / KEYS][i % KEYS];
            }
        }

        // Softmax: what the sums so far are relative to may have changed.
        float rescale[ROWS];
        #pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            SeenInTile<BLOCK_N> seen;
            if (is_masked) seen = {keys_of(tile_query + row + i), start};
            float tile_max = row_max[i];
            for (int j = 0; j < KEYS; ++j) {
                float& score = scores[i][j];
                score = cap(score * scale, softcap);
                if (!seen.contains(key + j * THREADS_PER_ROW)) score = -INFINITY;
                tile_max = fmaxf(tile_max, score);
            }
            tile_max = warp_reduce<THREADS_PER_ROW>(tile_max, Max{});
            const float origin = finite_origin(tile_max);
            rescale[i] = exponential<T>(row_max[i] - origin);
            row_max[i] = tile_max;
            float tile_sum = 0.0f;
            for (int j = 0; j < KEYS; ++j) {
                const int tile_key = key + j * THREADS_PER_ROW;
                const float p = exponential<T>(scores[i][j] - origin);
                tile_sum += p;
                shared.p[row + i][tile_key] = seen.contains(tile_key) ? p : UNSEEN;
            }
            row_sum[i] = row_sum[i] * rescale[i] + tile_sum;
        }
        __syncthreads();

        // A tile's values have sums of their own: along a single chain of additions the
        // rounding errors of thousands would pile up.
        copy_tile<NUM_THREADS>(
            shared.k_or_v, v_ptr + start * v_stride_row, v_stride_row, n_left, head_dim
        );
        __syncthreads();
        Vec<float, VEC_SIZE> tile_sums[ROWS][COL_VECS] = {};
        const auto add_values = [&]<bool IS_MASKED>() {
            #pragma unroll 1
            for (int k = 0; k < BLOCK_N; k += VEC_SIZE) {
                Vec<float, VEC_SIZE> p[ROWS];
                for (int i = 0; i < ROWS; ++i) {
                    p[i] = load<VEC_SIZE>(&shared.p[row + i][k], true, 0.0f);
                }
                #pragma unroll
                for (int j = 0; j < VEC_SIZE * COL_VECS; ++j) {
                    const float* v_row = shared.k_or_v[k + j / COL_VECS];
                    const auto v = load<VEC_SIZE>(
                        v_row + col + j % COL_VECS * COL_STEP, true, 0.0f
                    );
                    #pragma unroll
                    for (int i = 0; i < ROWS; ++i) {
                        const float weight = p[i][j / COL_VECS];
                        if (IS_MASKED && weight == UNSEEN) continue;
                        for (int c = 0; c < VEC_SIZE; ++c) {
                            tile_sums[i][j % COL_VECS][c] += weight * v[c];
                        }
                    }
                }
            }
        };
        is_masked ? add_values.template operator()<true>()
                  : add_values.template operator()<false>();
        #pragma unroll
        for (int i = 0; i < ROWS * COL_VECS * VEC_SIZE; ++i) {
            const int r = i / VEC_SIZE / COL_VECS, j = i / VEC_SIZE % COL_VECS;
            float& sum = sums[r][j][i % VEC_SIZE];
            sum = sum * rescale[r] + tile_sums[r][j][i % VEC_SIZE];
        }
        __syncthreads();
    }

    // -- store: rounded once; 0 for a query that sees no key
    const bool is_aligned =
        reinterpret_cast<uintptr_t>(out_ptr) % sizeof(Vec<T, VEC_SIZE>) == 0 &&
        out_stride_row % VEC_SIZE == 0;
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int64_t query = tile_query + row + i;
        const float sum = warp_reduce<THREADS_PER_ROW>(row_sum[i], Sum{});
        const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
        if (query >= n_queries) continue;
        for (int j = 0; j < COL_VECS; ++j) {
            const int out_col = col + j * COL_STEP;
            for (int c = 0; c < VEC_SIZE; ++c) sums[i][j][c] *= inverse;
            store(
                out_ptr + query * out_stride_row + out_col, from_float<T>(sums[i][j]),
                head_dim - out_col, is_aligned
            );
        }
        if (key == 0) {
            lse_ptr[query] = finite_origin(row_max[i]) + logf(sum);
        }
    }
}
