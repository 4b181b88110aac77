// What the kernels of both norms share: sums, weights, and copies of rows in shared
// memory. layer_norm HAS_MEAN, rms_norm has none.
#pragma once

#include "common/ptx/async_copy.cuh"
#include "common/reduce.cuh"
#include "common/tile.cuh"

// Sums of a row or a column: of squares or products and, with a mean, of values too.
template <bool HAS_MEAN>
constexpr int NUM_SUMS = HAS_MEAN ? 2 : 1;

// A thread's share of a row's sums, added to what it has so far.
template <bool HAS_MEAN, int SIZE, int COUNT>
__device__ __forceinline__ Vec<float, NUM_SUMS<HAS_MEAN>> add_up(
    const Tile<float, SIZE, COUNT>& products, const Tile<float, SIZE, COUNT>& values,
    Vec<float, NUM_SUMS<HAS_MEAN>> sums = {}
) {
    sums[0] = reduce(products, Sum{}, sums[0]);
    if constexpr (HAS_MEAN) sums[1] = reduce(values, Sum{}, sums[1]);
    return sums;
}

// A thread's columns of a weight or a bias, or `absent` where that is null.
template <int SIZE, int COUNT, int STEP, typename T, typename Index>
__device__ __forceinline__ Tile<T, SIZE, COUNT> load_weight(
    const T* weight_ptr, int64_t first_col, Index n_left, float absent
) {
    if (weight_ptr == nullptr) n_left = 0;
    return load_row<SIZE, COUNT, STEP>(weight_ptr + first_col, n_left, absent);
}

// Copies of a thread's columns, STEP apart, in shared memory, where those of a block
// are neighbours. Each thread reads back only its own copies, so no barrier is needed.
template <typename T, int SIZE, int COUNT, int STEP, int NUM_THREADS>
struct alignas(VEC_BYTES) Copies {
    T values[COUNT * NUM_THREADS * SIZE];

    // Past the end of the row they become 0. cp.async has no 2-byte form, and pending
    // plain loads occupy registers.
    __device__ __forceinline__ void start(const T* ptr, int n_left) {
        constexpr int BYTES = SIZE * sizeof(T);
        [[maybe_unused]] constexpr int AT_ONCE = BYTES >= 4 ? COUNT : 2;
        #pragma unroll AT_ONCE
        for (int i = 0; i < COUNT; ++i) {
            T* const copy = values + (i * NUM_THREADS + threadIdx.x) * SIZE;
            const bool is_valid = i * STEP < n_left;
            if constexpr (BYTES >= 4) {
                ptx::cp_async<BYTES>(copy, ptr + i * STEP, is_valid ? BYTES : 0);
            } else {
                store(copy, load<SIZE>(ptr + i * STEP, is_valid, T{}));
            }
        }
    }

    // All of them, once they have been waited for.
    __device__ __forceinline__ Tile<T, SIZE, COUNT> load_all() const {
        constexpr int COPY_STEP = NUM_THREADS * SIZE;
        return load_row<SIZE, COUNT, COPY_STEP>(
            values + threadIdx.x * SIZE, COUNT * COPY_STEP
        );
    }
};
