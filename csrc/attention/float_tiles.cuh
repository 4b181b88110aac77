// Tiles of q, k and v in shared memory, as float32, for the kernels of rung tiled.
#pragma once

#include "attention/scores.cuh"
#include "common/launch.cuh"
#include "common/vec.cuh"

namespace tiled {
constexpr int VEC_SIZE = 4;
constexpr int PAD =
    4;  // columns of a tile: they put neighbouring rows into other banks
// A row is shared by 16 threads, half a warp; each of them has 4 neighbouring rows.
constexpr int THREADS_PER_ROW = 16;
constexpr int ROWS = 4;
// So many products of a score are added up, then such sums: along a single chain of additions
// the rounding errors of hundreds would pile up.
constexpr int SUMMANDS = 32;
// In place of the probability of a key that a query does not see, as 0 times inf is NaN.
constexpr float UNSEEN = -1.0f;

template <int HEAD_DIM>
constexpr int BLOCK_M = HEAD_DIM <= 128 ? 64 : 32;
template <int HEAD_DIM>
constexpr int BLOCK_N = BLOCK_M<HEAD_DIM>;
template <int HEAD_DIM>
constexpr int NUM_THREADS = BLOCK_M<HEAD_DIM> / ROWS * THREADS_PER_ROW;

// k and v take turns in the same place, so that a tile fits the 99 KB of the smaller GPUs.
template <int HEAD_DIM>
struct Shared {
    float q[BLOCK_M<HEAD_DIM>][HEAD_DIM + PAD];
    float k_or_v[BLOCK_N<HEAD_DIM>][HEAD_DIM + PAD];
    float p[BLOCK_M<HEAD_DIM>][BLOCK_N<HEAD_DIM> + PAD];
};

// Copies n_rows rows of head_dim columns, and zeros for the rest of the tile.
template <int NUM_THREADS, typename T, int N_ROWS, int N_COLS>
__device__ __forceinline__ void copy_tile(
    float (&tile)[N_ROWS][N_COLS], const T* ptr, int64_t stride_row, int64_t n_rows,
    int head_dim
) {
    constexpr int ROW_VECS = (N_COLS - PAD) / VEC_SIZE;
    const bool is_aligned =
        reinterpret_cast<uintptr_t>(ptr) % sizeof(Vec<T, VEC_SIZE>) == 0 &&
        stride_row % VEC_SIZE == 0;
    #pragma unroll 4
    for (int i = threadIdx.x; i < N_ROWS * ROW_VECS; i += NUM_THREADS) {
        const int row = i / ROW_VECS, col = i % ROW_VECS * VEC_SIZE;
        const auto vec = load<VEC_SIZE>(
            ptr + row * stride_row + col, row < n_rows ? head_dim - col : 0, T{},
            is_aligned
        );
        store(&tile[row][col], to_float(vec));
    }
}

// Where the keys that a query sees, or the queries that see a key, lie in a tile of BLOCK_N:
// from `first` on, up to `end`.
template <int BLOCK_N>
struct SeenInTile {
    int first = 0;
    int end = BLOCK_N;

    SeenInTile() = default;
    template <typename Seen>
    __device__ SeenInTile(const Seen& seen, int64_t start)
        : first(clamp(seen.first - start)), end(clamp(seen.end - start)) {}

    __device__ bool contains(int i) const { return first <= i && i < end; }

  private:
    __device__ static int clamp(int64_t i) {
        return static_cast<int>(min(max(i, int64_t{0}), int64_t{BLOCK_N}));
    }
};

// e^x, as T resolves it.
template <typename T>
__device__ __forceinline__ float exponential(float x) {
    return sizeof(T) == 4 ? accurate_exp(x) : fast_exp(x);
}
}  // namespace tiled
