// Rows that are too long for registers: what a block keeps of its slice in shared memory,
// and how the blocks of a cluster cut a row into slices.
#pragma once

#include "common/cluster.cuh"
#include "common/ptx/async_copy.cuh"
#include "common/tile.cuh"

constexpr int LONG_NUM_THREADS = 512;
constexpr int LONG_NUM_WARPS = LONG_NUM_THREADS / WARP_SIZE;
template <int VEC_SIZE>
constexpr int LONG_VECS = 16 / VEC_SIZE;  // that a thread works on at a time
// The columns of a thread are vectors so far apart.
template <int VEC_SIZE>
constexpr int LONG_STEP = LONG_NUM_THREADS * VEC_SIZE;
// The most groups of copies that a block keeps: more than the 227 KB of an H200.
constexpr int MAX_COPY_GROUPS = 16;
// Three blocks with as much on a multiprocessor keep an H200's memory busy, and a block of
// a cluster has no more of a row, unless there are no more blocks.
constexpr int64_t SLICE_BYTES = 64 * 1024;
// Before Hopper a multiprocessor has less shared memory.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int LONG_BLOCKS_PER_SM = 2;
#else
constexpr int LONG_BLOCKS_PER_SM = 3;
#endif

// Starts to copy a thread's columns to shared memory, one group of copies for what it will
// work on at a time, and fills the rest of n_kept. cp.async has no 2-byte form.
template <int VEC_SIZE, typename T>
__device__ __forceinline__ void start_copy(
    T* kept, int n_kept, const T* ptr, int n_left, float fill
) {
    constexpr int STEP = LONG_STEP<VEC_SIZE>, VECS = LONG_VECS<VEC_SIZE>;
    constexpr int BYTES = VEC_SIZE * sizeof(T);
    for (int start = 0; start < n_kept; start += VECS * STEP) {
        if constexpr (BYTES >= 4) {
            #pragma unroll
            for (int col = start; col < start + VECS * STEP; col += STEP) {
                if (col < n_left) {
                    ptx::cp_async<BYTES>(kept + col, ptr + col);
                } else {
                    store(kept + col, splat<VEC_SIZE>(from_float<T>(fill)));
                }
            }
            ptx::cp_async_commit_group();
        } else {
            const auto x =
                load_row<VEC_SIZE, VECS, STEP>(ptr + start, n_left - start, fill);
            #pragma unroll
            for (int i = 0; i < VECS; ++i) store(kept + start + i * STEP, x[i]);
        }
    }
}

// The columns that a thread works on at a time, from its first of n_left on.
template <int VEC_SIZE, int VECS, bool ARE_FULL, typename T, typename Index>
__device__ __forceinline__ Tile<float, VEC_SIZE, VECS> load_columns(
    const T* ptr, Index n_left, float fill = 0.0f
) {
    constexpr int STEP = LONG_STEP<VEC_SIZE>;
    constexpr Index MOST = VECS * STEP;
    const int n_valid = static_cast<int>(ARE_FULL ? MOST : min(n_left, MOST));
    return to_float(load_row<VEC_SIZE, VECS, STEP>(ptr, n_valid, fill));
}

// How the blocks of a cluster share a row.
struct Slices {
    int n_blocks;
    int64_t size;          // columns that each owns
    int n_kept;            // columns that it keeps in shared memory
    int64_t shared_bytes;  // that those take
};

// Bytes of a column in all tensors that are kept.
template <int VEC_SIZE>
Slices slices_of(const Device& device, int64_t n_cols, int64_t col_bytes) {
    constexpr int64_t WARP_COLS = WARP_SIZE * VEC_SIZE;  // that a warp reads at a time
    constexpr int64_t STEP = LONG_VECS<VEC_SIZE> * LONG_STEP<VEC_SIZE>;
    constexpr int64_t RESULTS_BYTES = sizeof(WarpResults<2, LONG_NUM_WARPS, true>);
    const int most_blocks = device.arch < 90 ? 1 : MAX_CLUSTER_SIZE;
    int n_blocks = 1;
    while (n_blocks < most_blocks && n_cols * col_bytes > n_blocks * SLICE_BYTES) {
        n_blocks *= 2;
    }
    const int64_t size = ceil_div(n_cols, n_blocks * WARP_COLS) * WARP_COLS;
    const int64_t room = (device.max_shared_bytes - RESULTS_BYTES) / col_bytes;
    const int64_t n_groups = min(ceil_div(size, STEP), room / STEP);
    const int n_kept = static_cast<int>(min(n_groups, int64_t{MAX_COPY_GROUPS}) * STEP);
    return {n_blocks, size, n_kept, RESULTS_BYTES + n_kept * col_bytes};
}

// What runs a kernel with a cluster for each row.
template <typename... Params>
Plan<Params...> plan_slices(
    void (*kernel)(Params...), int64_t n_rows, const Slices& slices
) {
    const dim3 cluster(1, slices.n_blocks);
    const dim3 grid(n_rows, slices.n_blocks);
    return {kernel, grid, dim3(LONG_NUM_THREADS), slices.shared_bytes, cluster};
}
