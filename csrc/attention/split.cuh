// Few queries and long keys: blocks share the keys, as tiles of queries are too few to keep a
// GPU busy, and attention_combine_kernel puts the parts together. Reading k and v once bounds
// the time: 4096 keys of 8 heads of 128 columns in a batch of 32 are 537 MB, or 125 us at 4.3
// TB/s. So a tile has the queries of all heads that share one of k and v. A part writes
// head_dim + 2 floats for a row, little as it has eight keys or more for each row of the tile.
// The warps of a block take turns with its keys, and none waits for another before the end.
// Each multiplies a tile of 8 KB (16 KB if head_dim is above 128) while two are on their way.
// Hopper has room for 8 such warps: 26 KB on their way would hide the latency of the memory,
// the other warps hide that of what each does with its tile.
#pragma once

#include "attention/combine.cuh"
#include "attention/fragments.cuh"
#include "attention/scores.cuh"
#include "attention/tiles.cuh"
#include "common/ptx/griddepcontrol.cuh"

namespace split {
constexpr int MAX_WARPS = 8;  // of a block; fewer where their tiles do not fit
constexpr int NUM_STAGES = 3;

template <int HEAD_DIM>
constexpr int BLOCK_N = HEAD_DIM <= 64 ? 32 : 16;

// The shared memory of a warp.
template <typename T, int BLOCK_M, int HEAD_DIM>
struct Warp {
    struct Stage {
        tensor_cores::Tile<T, BLOCK_N<HEAD_DIM>, HEAD_DIM> k, v;
    };
    union {
        Stage stages[NUM_STAGES];
        float sums[BLOCK_M][HEAD_DIM + 8];  // 4 rows of 8 columns are in all banks
    };
    float row_max[BLOCK_M];
    float row_sum[BLOCK_M];
};

template <typename T, int BLOCK_M, int HEAD_DIM>
constexpr int64_t shared_bytes(int n_warps) {
    return sizeof(tensor_cores::Tile<T, BLOCK_M, HEAD_DIM>) +
           n_warps * sizeof(Warp<T, BLOCK_M, HEAD_DIM>);
}
}  // namespace split

template <typename T, int BLOCK_M, int HEAD_DIM>
__global__ void
__launch_bounds__(split::MAX_WARPS* WARP_SIZE, 1) attention_split_kernel(
    T* out_ptr,             // (n_batches, n_queries, n_heads, head_dim)
    float* lse_ptr,         // (n_batches, n_heads, n_queries)
    float* parts_ptr,       // (n_batches, n_heads, n_queries, n_splits, head_dim)
    float* statistics_ptr,  // (n_batches, n_heads, n_queries, n_splits, 2)
    const T* q_ptr,         // (n_batches, n_queries, n_heads, head_dim)
    const T* k_ptr,         // (n_batches, n_keys, n_kv_heads, head_dim)
    const T* v_ptr,         // (n_batches, n_keys, n_kv_heads, head_dim)
    int n_heads, int n_kv_heads, int64_t n_queries, int64_t n_keys, int head_dim,
    int64_t out_stride_batch, int64_t out_stride_row, int64_t out_stride_head,
    int64_t q_stride_batch, int64_t q_stride_row, int64_t q_stride_head,
    int64_t k_stride_batch, int64_t k_stride_row, int64_t k_stride_head,
    int64_t v_stride_batch, int64_t v_stride_row, int64_t v_stride_head, float scale,
    float softcap, int64_t window_left, int64_t window_right, int n_splits
) {
    using namespace tensor_cores;
    using namespace split;
    constexpr int BLOCK_N = split::BLOCK_N<HEAD_DIM>;
    constexpr int ROWS = BLOCK_M / 8, SCORES = BLOCK_N / 4;  // of a tile in a thread
    DYNAMIC_SHARED(bytes, 128);
    auto& q_tile = *reinterpret_cast<Tile<T, BLOCK_M, HEAD_DIM>*>(bytes);
    auto* const warps = reinterpret_cast<Warp<T, BLOCK_M, HEAD_DIM>*>(&q_tile + 1);

    // -- tile: a block owns BLOCK_M rows, and one of n_splits parts of the keys that they see;
    // row r is query r / sharing of head r % sharing, of those that share a head of k and v
    const int sharing = n_heads / n_kv_heads;
    const int n_rows = static_cast<int>(n_queries) * sharing;
    const int n_row_tiles = (n_rows + BLOCK_M - 1) / BLOCK_M;
    const int split = blockIdx.x % n_splits, tile = blockIdx.x / n_splits;
    const int tile_row = tile % n_row_tiles * BLOCK_M, matrix = tile / n_row_tiles;
    const int64_t batch = matrix / n_kv_heads, kv_head = matrix % n_kv_heads;
    const int n_warps = blockDim.x / WARP_SIZE;
    const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
    const auto visible = [&](int64_t query) {
        return visible_keys(query, n_queries, n_keys, window_left, window_right);
    };
    const int64_t begin = visible(tile_row / sharing).first;
    const auto keys_of = [&](int row) {
        const auto [first, end] = visible(row / sharing);
        return Span{static_cast<int>(first - begin), static_cast<int>(end - begin)};
    };
    q_ptr += batch * q_stride_batch + kv_head * sharing * q_stride_head;
    k_ptr += batch * k_stride_batch + begin * k_stride_row + kv_head * k_stride_head;
    v_ptr += batch * v_stride_batch + begin * v_stride_row + kv_head * v_stride_head;
    const Span of_first = keys_of(tile_row);
    const Span of_last = keys_of(min(tile_row + BLOCK_M, n_rows) - 1);
    // Whole tiles of keys, so that parts may be left without any.
    const int n_tiles = (max(of_last.end, 0) + BLOCK_N - 1) / BLOCK_N;
    const int split_size = (n_tiles + n_splits - 1) / n_splits * BLOCK_N;
    const int split_end = min((split + 1) * split_size, of_last.end);
    const auto start_of = [&](int step) {
        return split * split_size + (step * n_warps + warp) * BLOCK_N;
    };

    // Where scores are scaled by a positive number and no more, that is left to the exponent.
    const bool is_plain = softcap == 0.0f && scale > 0.0f;
    const float unit = is_plain ? scale : 1.0f, exponent_unit = unit * LOG2_E;

    // -- compute: NUM_STAGES - 1 tiles of k and v are on their way
    const auto copy = [&](int step) {
        const int start = start_of(step);
        if (start < split_end) {
            auto& [k_tile, v_tile] = warps[warp].stages[step % NUM_STAGES];
            k_tile.template copy_from<WARP_SIZE>(
                k_ptr + start * k_stride_row, k_stride_row, split_end - start, head_dim
            );
            v_tile.template copy_from<WARP_SIZE>(
                v_ptr + start * v_stride_row, v_stride_row, split_end - start, head_dim
            );
        }
        ptx::cp_async_commit_group();
    };
    ptx::griddepcontrol_launch_dependents();  // which get ready meanwhile, and wait
    ptx::griddepcontrol_wait();
    copy(0);  // the queries come next: behind all tiles they would come late
    for (int i = threadIdx.x; i < BLOCK_M * q_tile.ROW_CHUNKS; i += blockDim.x) {
        const int tile_i = i / q_tile.ROW_CHUNKS, chunk = i % q_tile.ROW_CHUNKS;
        const int row = tile_row + tile_i, col = chunk * CHUNK;
        q_tile.copy_chunk(
            tile_i, chunk,
            q_ptr + row / sharing * q_stride_row + row % sharing * q_stride_head + col,
            row < n_rows ? head_dim - col : 0
        );
    }
    ptx::cp_async_commit_group();
    for (int step = 1; step < NUM_STAGES - 1; ++step) copy(step);
    ptx::cp_async_wait_group<NUM_STAGES - 2>();
    __syncthreads();  // the queries are there
    float sums[BLOCK_M / 16][HEAD_DIM / 16][2][4] = {};
    RunningSoftmax<ROWS> softmax;
    for (int step = 0; start_of(step) < split_end; ++step) {
        ptx::cp_async_wait_group<NUM_STAGES - 2>();
        __syncwarp();
        copy(step + NUM_STAGES - 1);
        auto& [k_tile, v_tile] = warps[warp].stages[step % NUM_STAGES];
        float scores[BLOCK_M / 16][BLOCK_N / 16][2][4] = {};
        #pragma unroll
        for (int d = 0; d < HEAD_DIM; d += MMA_K) {
            uint32_t q[BLOCK_M / 16][4];
            for (int i = 0; i < BLOCK_M / 16; ++i) q_tile.load_left(q[i], i * 16, d);
            #pragma unroll
            for (int j = 0; j < BLOCK_N / 16; ++j) {
                uint32_t k[4];
                k_tile.load_right(k, j * 16, d);
                for (int i = 0; i < BLOCK_M / 16; ++i) {
                    add_products<T>(scores[i][j], q[i], k);
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < ROWS * SCORES && !is_plain; ++i) {
            float& score = element(scores, i / SCORES, i % SCORES);
            score = cap(score * scale, softcap);
        }
        const int start = start_of(step);
        if (start < of_last.first || start + BLOCK_N > of_first.end) {
            #pragma unroll
            for (int i = 0; i < ROWS; ++i) {
                const Span keys = keys_of(tile_row + i * 8 + lane / 4);
                for (int j = 0; j < SCORES; ++j) {
                    const int key = start + lane % 4 * 2 + j / 2 * 8 + j % 2;
                    if (!keys.contains(key)) element(scores, i, j) = -INFINITY;
                }
            }
        }
        uint32_t p[BLOCK_M / 16][BLOCK_N / 16][4];
        softmax.template add<T>(p, sums, scores, exponent_unit);
        #pragma unroll
        for (int j = 0; j < BLOCK_N / 16; ++j) {
            #pragma unroll
            for (int d = 0; d < HEAD_DIM / 16; ++d) {
                uint32_t v[4];
                v_tile.load_right_transposed(v, j * 16, d * 16);
                for (int i = 0; i < BLOCK_M / 16; ++i) {
                    add_products<T>(sums[i][d], p[i][j], v);
                }
            }
        }
    }
    // The parts of the warps are put together, as attention_combine_kernel does those of blocks.
    __syncwarp();  // its last tile has been read
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        if (tile_row + i * 8 >= n_rows) break;
        const int row = i * 8 + lane / 4;
        const float sum = warp_reduce<4>(softmax.row_sum[i], Sum{});
        #pragma unroll
        for (int j = 0; j < HEAD_DIM / 8; ++j) {
            store(
                warps[warp].sums[row] + j * 8 + lane % 4 * 2,
                sum == 0.0f ? Vec<float, 2>{}
                            : Vec<float, 2>{
                                  element(sums, i, 2 * j), element(sums, i, 2 * j + 1)
                              }
            );
        }
        if (lane % 4 == 0) {
            warps[warp].row_max[row] = softmax.row_max[i];
            warps[warp].row_sum[row] = sum;
        }
    }
    __syncthreads();  // the parts of all warps are there

    // -- store: sums relative to the largest score of the part; of a single part the means
    constexpr int VEC_SIZE = 4;
    for (int i = threadIdx.x; i < BLOCK_M * HEAD_DIM / VEC_SIZE; i += blockDim.x) {
        const int tile_i = i / (HEAD_DIM / VEC_SIZE), row = tile_row + tile_i;
        const int col = i % (HEAD_DIM / VEC_SIZE) * VEC_SIZE;
        if (row >= n_rows) break;
        float row_max = -INFINITY;
        #pragma unroll  // so that no load waits for another one
        for (int w = 0; w < MAX_WARPS; ++w)
            if (w < n_warps) row_max = fmaxf(row_max, warps[w].row_max[tile_i]);
        const float origin = finite_origin(row_max);
        float row_sum = 0.0f;
        Vec<float, VEC_SIZE> total{};
        #pragma unroll
        for (int w = 0; w < MAX_WARPS; ++w) {
            if (w >= n_warps) break;
            const float factor =
                ptx::exp2((warps[w].row_max[tile_i] - origin) * exponent_unit);
            row_sum += factor * warps[w].row_sum[tile_i];
            for (int c = 0; c < VEC_SIZE; ++c) {
                total[c] += factor * warps[w].sums[tile_i][col + c];
            }
        }
        const int64_t head = kv_head * sharing + row % sharing, query = row / sharing;
        const int64_t lse_row = (batch * n_heads + head) * n_queries + query;
        if (n_splits == 1) {
            T* const ptr = out_ptr + batch * out_stride_batch + query * out_stride_row +
                           head * out_stride_head + col;
            store_means(ptr, total, row_sum, head_dim - col);
            if (col == 0) lse_ptr[lse_row] = origin * unit + logf(row_sum);
            continue;
        }
        const int64_t part = lse_row * n_splits + split;
        store(
            parts_ptr + part * head_dim + col, total, head_dim - col,
            head_dim % VEC_SIZE == 0
        );
        if (col == 0) store(statistics_ptr + part * 2, Vec<float, 2>{row_max, row_sum});
    }
}
