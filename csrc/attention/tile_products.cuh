// The two products that the backward is made of, on tensor cores, and what becomes of them in
// the registers of a warp, which has 16 M rows of a tile.
#pragma once

#include "attention/fragments.cuh"
#include "attention/scores.cuh"
#include "attention/tiles.cuh"

namespace tensor_cores {
// A block owns keys or queries, and walks over tiles of the others: as many as fit the
// registers, and the 99 KB of shared memory of the smaller GPUs.
constexpr int WARP_KEYS = 16;
constexpr int BLOCK_KEYS = 4 * WARP_KEYS;
template <int HEAD_DIM>
constexpr int QUERIES_AT_A_TIME = HEAD_DIM <= 64 ? 64 : 32;
template <int HEAD_DIM>
constexpr int GRADS_PER_WARP = HEAD_DIM <= 128 ? 2 : 1;  // of those of k and v
template <int HEAD_DIM>
constexpr int KEYS_THREADS = 4 * WARP_SIZE * 2 / GRADS_PER_WARP<HEAD_DIM>;

// 32 queries share what a warp reads of k and v, if their sums fit its registers.
template <int HEAD_DIM>
constexpr int WARP_QUERIES = HEAD_DIM <= 128 ? 32 : 16;
template <int HEAD_DIM>
constexpr int BLOCK_QUERIES = 4 * WARP_QUERIES<HEAD_DIM>;
template <int HEAD_DIM>
constexpr int KEYS_AT_A_TIME = HEAD_DIM <= 64 ? 64 : 32;
constexpr int QUERIES_THREADS = 4 * WARP_SIZE;

template <typename T, int HEAD_DIM>
struct KeysShared {
    static constexpr int BLOCK_M = QUERIES_AT_A_TIME<HEAD_DIM>;
    Tile<T, BLOCK_KEYS, HEAD_DIM> k, v;  // in the end their gradients
    Tile<T, BLOCK_M, HEAD_DIM> q, grad;
    float lse[BLOCK_M], delta[BLOCK_M];
};

template <typename T, int HEAD_DIM>
struct QueriesShared {
    Tile<T, BLOCK_QUERIES<HEAD_DIM>, HEAD_DIM> q, grad;  // q in the end its gradient
    Tile<T, KEYS_AT_A_TIME<HEAD_DIM>, HEAD_DIM> k, v;
};

// Starts to copy n_valid numbers, and zeros for the rest of a row.
template <int N>
__device__ __forceinline__ void copy_row(
    float (&row)[N], const float* ptr, int n_valid
) {
    const int i = threadIdx.x;
    if (i >= N) return;
    ptx::cp_async<sizeof(float)>(&row[i], ptr + i, i < n_valid ? sizeof(float) : 0);
}

// products = the warp's rows of own, from `row` on, times all rows of other.
template <typename T, int M, int N_OWN, int N_OTHER, int HEAD_DIM>
__device__ __forceinline__ void multiply_rows(
    float (&products)[M][N_OTHER / 16][2][4], Tile<T, N_OWN, HEAD_DIM>& own,
    Tile<T, N_OTHER, HEAD_DIM>& other, int row
) {
    #pragma unroll
    for (int i = 0; i < M * N_OTHER / 2; ++i) {
        element(products, i % (2 * M), i / (2 * M)) = 0.0f;
    }
    #pragma unroll 4  // all would take more registers than there are
    for (int d = 0; d < HEAD_DIM; d += MMA_K) {
        uint32_t left[M][4];
        for (int i = 0; i < M; ++i) own.load_left(left[i], row + i * 16, d);
        #pragma unroll
        for (int j = 0; j < N_OTHER / 16; ++j) {
            uint32_t right[4];
            other.load_right(right, j * 16, d);
            for (int i = 0; i < M; ++i) add_products<T>(products[i][j], left[i], right);
        }
    }
}

// sums += weights, in registers, times all rows of other.
template <typename T, int M, int N_OTHER, int HEAD_DIM>
__device__ __forceinline__ void add_weighted_rows(
    float (&sums)[M][HEAD_DIM / 16][2][4],
    const uint32_t (&weights)[M][N_OTHER / 16][4], Tile<T, N_OTHER, HEAD_DIM>& other
) {
    #pragma unroll
    for (int j = 0; j < N_OTHER / 16; ++j) {
        #pragma unroll
        for (int d = 0; d < HEAD_DIM / 16; ++d) {
            uint32_t right[4];
            other.load_right_transposed(right, j * 16, d * 16);
            for (int i = 0; i < M; ++i)
                add_products<T>(sums[i][d], weights[i][j], right);
        }
    }
}

// Turns scores into probabilities, and the gradients of those into gradients of scores. For
// the thread's i-th row and a column of the tile, lse_of and delta_of tell what softmax has
// left. seen_of tells which columns a row of the warp has to do with, where is_masked.
template <int M, int N, typename LseOf, typename DeltaOf, typename SeenOf>
__device__ __forceinline__ void differentiate_softmax(
    float (&scores)[M][N][2][4], float (&grads)[M][N][2][4], float scale, float softcap,
    LseOf lse_of, DeltaOf delta_of, bool is_masked, SeenOf seen_of
) {
    const auto col_of = [](int j) {
        return static_cast<int>(threadIdx.x % 4 * 2 + j / 2 * 8 + j % 2);
    };
    const auto differentiate = [&]<bool IS_CAPPED>() {
        #pragma unroll
        for (int k = 0; k < 8 * M * N; ++k) {
            const int i = k % (2 * M), j = k / (2 * M);
            float &score = element(scores, i, j), &grad = element(grads, i, j);
            float slope = 1.0f;
            if constexpr (IS_CAPPED) {
                score = cap(score * scale, softcap);
                slope = cap_derivative(score, softcap);
            }
            // One rounding of a difference that may be small.
            const float distance =
                fmaf(score, IS_CAPPED ? 1.0f : scale, -lse_of(i, col_of(j)));
            score = ptx::exp2(distance * LOG2_E);
            grad = score * (grad - delta_of(i, col_of(j))) * slope;
        }
    };
    softcap == 0.0f ? differentiate.template operator()<false>()
                    : differentiate.template operator()<true>();
    #pragma unroll
    for (int i = 0; i < 2 * M && is_masked; ++i) {
        const Span seen =
            seen_of(static_cast<int>(threadIdx.x % WARP_SIZE / 4 + i * 8));
        #pragma unroll
        for (int j = 0; j < 4 * N; ++j) {
            if (seen.contains(col_of(j))) continue;
            element(scores, i, j) = 0.0f;
            element(grads, i, j) = 0.0f;
        }
    }
}

// Rounds values to the left operand of a product, in place: nothing has to be exchanged.
template <typename T, int M, int N>
__device__ __forceinline__ void round_to_operand(
    uint32_t (&operand)[M][N][4], float (&values)[M][N][2][4]
) {
    #pragma unroll
    for (int k = 0; k < 4 * M * N; ++k) {
        const int i = k % (2 * M), j = k / (2 * M) * 2;
        operand[i / 2][j / 4][j / 2 % 2 * 2 + i % 2] =
            pack<T>(element(values, i, j), element(values, i, j + 1));
    }
}

// Writes the warp's rows, of n_rows in the block, times a factor, each rounded once, by way of
// the rows of a tile, in vectors.
template <typename T, int M, int N_ROWS, int HEAD_DIM>
__device__ __forceinline__ void store_rows(
    T* ptr, int64_t stride_row, float (&sums)[M][HEAD_DIM / 16][2][4], float factor,
    Tile<T, N_ROWS, HEAD_DIM>& tile, int row, int n_rows, int head_dim
) {
    const int lane = threadIdx.x % WARP_SIZE;
    #pragma unroll
    for (int k = 0; k < M * HEAD_DIM / 4; ++k) {
        const int i = k % (2 * M), j = k / (2 * M);
        T* chunk = tile.chunk(row + i * 8 + lane / 4, j);
        uint32_t* to = reinterpret_cast<uint32_t*>(chunk) + lane % 4;
        *to = pack<T>(
            element(sums, i, 2 * j) * factor, element(sums, i, 2 * j + 1) * factor
        );
    }
    __syncwarp();
    const bool is_aligned =
        reinterpret_cast<uintptr_t>(ptr) % VEC_BYTES == 0 && stride_row % CHUNK == 0;
    constexpr int ROW_CHUNKS = HEAD_DIM / CHUNK;
    #pragma unroll 4
    for (int k = lane; k < 16 * M * ROW_CHUNKS; k += WARP_SIZE) {
        const int tile_row = row + k / ROW_CHUNKS, chunk = k % ROW_CHUNKS;
        const int n_valid = tile_row < n_rows ? head_dim - chunk * CHUNK : 0;
        store(
            ptr + tile_row * stride_row + chunk * CHUNK,
            load<CHUNK>(tile.chunk(tile_row, chunk), true, T{}), n_valid, is_aligned
        );
    }
}
}  // namespace tensor_cores
