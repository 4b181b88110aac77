// The two products that the backward is made of, of float32 in shared memory, and what
// becomes of the second one.
#pragma once

#include "attention/float_tiles.cuh"

namespace tiled {
// A block owns rows of one kind, keys or queries, and walks over tiles of the other kind.
constexpr int OWN_ROWS = 32;
template <int HEAD_DIM>
constexpr int OTHER_ROWS = HEAD_DIM <= 128 ? 64 : 32;
constexpr int BACKWARD_THREADS = OWN_ROWS / ROWS * THREADS_PER_ROW;
template <int HEAD_DIM>
constexpr int BACKWARD_BLOCKS = HEAD_DIM <= 128 ? 3 : 2;  // for their registers

// k and v, or q and grad, take turns in the same place, so that they fit the 99 KB of the
// smaller GPUs.
template <int HEAD_DIM>
struct QueriesShared {
    float q_or_grad[OWN_ROWS][HEAD_DIM + PAD];
    float k_or_v[OTHER_ROWS<HEAD_DIM>][HEAD_DIM + PAD];
    float grad_scores[OWN_ROWS][OTHER_ROWS<HEAD_DIM> + PAD];
};
template <int HEAD_DIM>
struct KeysShared {
    float k_or_v[OWN_ROWS][HEAD_DIM + PAD];
    float q_or_grad[OTHER_ROWS<HEAD_DIM>][HEAD_DIM + PAD];
    float p[OWN_ROWS][OTHER_ROWS<HEAD_DIM> + PAD];
    float grad_scores[OWN_ROWS][OTHER_ROWS<HEAD_DIM> + PAD];
};

// A thread's part of the gradients of ROWS rows.
template <int HEAD_DIM>
using GradVecs = Vec<float, VEC_SIZE>[ROWS][HEAD_DIM / (THREADS_PER_ROW * VEC_SIZE)];

// products[i][j] = row `row + i` of own times row `other_row + j * THREADS_PER_ROW` of other:
// a half-warp reads neighbouring rows of it.
template <int COLS, int N_OWN, int N_OTHER, int N_COLS>
__device__ __forceinline__ void multiply_rows(
    float (&products)[ROWS][COLS], const float (&own)[N_OWN][N_COLS],
    const float (&other)[N_OTHER][N_COLS], int row, int other_row
) {
    for (int begin = 0; begin < N_COLS - PAD; begin += SUMMANDS) {
        float parts[ROWS][COLS] = {};
        #pragma unroll 1
        for (int d = begin; d < begin + SUMMANDS; d += VEC_SIZE) {
            Vec<float, VEC_SIZE> own_vecs[ROWS];
            for (int i = 0; i < ROWS; ++i) {
                own_vecs[i] = load<VEC_SIZE>(&own[row + i][d], true, 0.0f);
            }
            #pragma unroll
            for (int j = 0; j < COLS; ++j) {
                const float* ptr = other[other_row + j * THREADS_PER_ROW];
                const auto other_vec = load<VEC_SIZE>(ptr + d, true, 0.0f);
                #pragma unroll
                for (int i = 0; i < ROWS * VEC_SIZE; ++i) {
                    const int r = i / VEC_SIZE, c = i % VEC_SIZE;
                    parts[r][j] += own_vecs[r][c] * other_vec[c];
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < ROWS * COLS; ++i) {
            products[i / COLS][i % COLS] += parts[i / COLS][i % COLS];
        }
    }
}

// sums[i] += the rows of other, times the weights of row `row + i`; where those are masked,
// only the rows that seen_of(i) contains, as 0 times inf is NaN. A tile's products have sums
// of their own: along a single chain of additions the rounding errors of thousands would
// pile up.
template <
    int COL_VECS, int N_OWN, int N_WEIGHTS, int N_OTHER, int N_COLS, typename SeenOf>
__device__ __forceinline__ void add_weighted_rows(
    Vec<float, VEC_SIZE> (&sums)[ROWS][COL_VECS],
    const float (&weights)[N_OWN][N_WEIGHTS], const float (&other)[N_OTHER][N_COLS],
    int row, int col, bool is_masked, SeenOf seen_of
) {
    const auto add = [&]<bool IS_MASKED>() {
        SeenInTile<N_OTHER> seen[ROWS];
        for (int i = 0; IS_MASKED && i < ROWS; ++i) seen[i] = seen_of(i);
        #pragma unroll
        for (int j = 0; j < COL_VECS; ++j) {
            Vec<float, VEC_SIZE> tile_sums[ROWS] = {};
            #pragma unroll 1
            for (int k = 0; k < N_OTHER; k += VEC_SIZE) {
                Vec<float, VEC_SIZE> weight[ROWS];
                for (int i = 0; i < ROWS; ++i) {
                    weight[i] = load<VEC_SIZE>(&weights[row + i][k], true, 0.0f);
                }
                #pragma unroll
                for (int c = 0; c < VEC_SIZE; ++c) {
                    const float* vec_ptr =
                        &other[k + c][col + j * THREADS_PER_ROW * VEC_SIZE];
                    const auto vec = load<VEC_SIZE>(vec_ptr, true, 0.0f);
                    #pragma unroll
                    for (int i = 0; i < ROWS; ++i) {
                        if (IS_MASKED && !seen[i].contains(k + c)) continue;
                        for (int e = 0; e < VEC_SIZE; ++e) {
                            tile_sums[i][e] += weight[i][c] * vec[e];
                        }
                    }
                }
            }
            for (int i = 0; i < ROWS * VEC_SIZE; ++i) {
                const int r = i / VEC_SIZE, e = i % VEC_SIZE;
                sums[r][j][e] += tile_sums[r][e];
            }
        }
    };
    is_masked ? add.template operator()<true>() : add.template operator()<false>();
}

// Writes n_rows rows of gradients, times a factor, each rounded once.
template <typename T, int COL_VECS>
__device__ __forceinline__ void store_grads(
    T* ptr, int64_t stride_row, Vec<float, VEC_SIZE> (&grads)[ROWS][COL_VECS],
    float factor, int64_t n_rows, int row, int col, int head_dim
) {
    const bool is_aligned =
        reinterpret_cast<uintptr_t>(ptr) % sizeof(Vec<T, VEC_SIZE>) == 0 &&
        stride_row % VEC_SIZE == 0;
    #pragma unroll
    for (int i = 0; i < ROWS * COL_VECS; ++i) {
        auto& vec = grads[i / COL_VECS][i % COL_VECS];
        for (int c = 0; c < VEC_SIZE; ++c) vec[c] *= factor;
        const int out_row = row + i / COL_VECS;
        const int out_col = col + i % COL_VECS * THREADS_PER_ROW * VEC_SIZE;
        store(
            ptr + out_row * stride_row + out_col, from_float<T>(vec),
            out_row < n_rows ? head_dim - out_col : 0, is_aligned
        );
    }
}
}  // namespace tiled
