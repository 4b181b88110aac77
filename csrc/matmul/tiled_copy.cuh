// How a block of matmul_tiled_kernel copies tiles of a and b into shared memory, by way of
// registers.
#pragma once

#include "common/launch.cuh"
#include "common/vec.cuh"

namespace tiled {
constexpr int BLOCK_K = 8;
constexpr int VEC_SIZE = 4;

// A tile of one operand, by k and by its outer dimension, the rows of a or the columns of b.
// Rows are longer by a vector, so that those that are 4 apart are in different banks.
template <int BLOCK>
using Tile = float[BLOCK_K][BLOCK + VEC_SIZE];

// A thread's part in the copy of an operand: vectors along the contiguous dimension, each
// OUTER_STEP rows behind the one before, or K_STEP entries of k.
template <typename T, int BLOCK, int NUM_THREADS>
struct Copy {
    static constexpr int VECS = BLOCK * BLOCK_K / (VEC_SIZE * NUM_THREADS);
    static constexpr int OUTER_STEP = BLOCK / VECS, K_STEP = BLOCK_K / VECS;

    bool k_is_contiguous, is_whole;
    int k, outer;    // of the first vector in the tile
    int n_outer;     // entries left in the matrix, from the first vector on
    const T* ptr;    // of the first vector of the next tile
    int64_t stride;  // of the dimension that is not contiguous
    Vec<T, VEC_SIZE> vecs[VECS];

    __device__ Copy(
        const T* tile_ptr, int64_t stride_outer, int64_t stride_k, int64_t n_outer
    )
        : k_is_contiguous(stride_k == 1),
          stride(k_is_contiguous ? stride_outer : stride_k) {
        constexpr int LANES_OF_K = BLOCK_K / VEC_SIZE,
                      LANES_OF_OUTER = BLOCK / VEC_SIZE;
        const int thread = threadIdx.x;
        k = k_is_contiguous ? thread % LANES_OF_K * VEC_SIZE : thread / LANES_OF_OUTER;
        outer =
            k_is_contiguous ? thread / LANES_OF_K : thread % LANES_OF_OUTER * VEC_SIZE;
        is_whole = reinterpret_cast<uintptr_t>(tile_ptr) % sizeof(vecs[0]) == 0 &&
                   stride % VEC_SIZE == 0 && n_outer >= BLOCK;
        this->n_outer = static_cast<int>(min(n_outer, int64_t{BLOCK})) - outer;
        ptr = tile_ptr + outer * stride_outer + k * stride_k;
    }

    // Loads the next tile, of n_k entries along k, if any; zeros surround the matrix.
    __device__ __forceinline__ void load_next(int64_t n_k) {
        const int64_t step = (k_is_contiguous ? OUTER_STEP : K_STEP) * stride;
        if (is_whole && n_k >= BLOCK_K) {
            #pragma unroll
            for (int i = 0; i < VECS; ++i) {
                vecs[i] = load<VEC_SIZE>(ptr + i * step, true, T{});
            }
        } else {
            const int left_k = static_cast<int>(min(n_k, int64_t{BLOCK_K})) - k;
            #pragma unroll
            for (int i = 0; i < VECS; ++i) {
                const int n_rows =
                    k_is_contiguous ? n_outer - i * OUTER_STEP : left_k - i * K_STEP;
                const int n_cols = k_is_contiguous ? left_k : n_outer;
                const T* const vec_ptr = ptr + i * step;
                for (int j = 0; j < VEC_SIZE; ++j) {
                    vecs[i][j] = n_rows > 0 && j < n_cols ? vec_ptr[j] : T{};
                }
            }
        }
        ptr += k_is_contiguous ? BLOCK_K : BLOCK_K * stride;
    }

    __device__ __forceinline__ void store_to(Tile<BLOCK>& tile) const {
        #pragma unroll
        for (int i = 0; i < VECS; ++i) {
            const Vec<float, VEC_SIZE> vec = to_float(vecs[i]);
            if (k_is_contiguous) {
                for (int j = 0; j < VEC_SIZE; ++j) {
                    tile[k + j][outer + i * OUTER_STEP] = vec[j];
                }
            } else {
                store(&tile[k + i * K_STEP][outer], vec);
            }
        }
    }
};
}  // namespace tiled
