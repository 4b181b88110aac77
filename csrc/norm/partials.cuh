// The sums over rows that every block of a backward leaves to norm_sum_partials_kernel.
#pragma once

#include "common/reduce.cuh"
#include "common/tile.cuh"

// Adds up the sums of threads that are GROUP_SIZE apart, which own the same columns of
// other rows, in their order. The first group gets the totals. Shared memory has a row
// for each element of a thread, unless there is only one group.
template <int NUM_THREADS, int GROUP_SIZE, int SIZE, int COUNT>
__device__ __forceinline__ void add_groups(
    Tile<float, SIZE, COUNT>& sums, float (*handed_in)[NUM_THREADS]
) {
    if constexpr (NUM_THREADS > GROUP_SIZE) {
        #pragma unroll
        for (int i = 0; i < SIZE * COUNT; ++i) {
            handed_in[i][threadIdx.x] = sums[i / SIZE][i % SIZE];
        }
        __syncthreads();
        if (threadIdx.x >= GROUP_SIZE) return;
        #pragma unroll
        for (int i = 0; i < SIZE * COUNT; ++i) {
            #pragma unroll 1
            for (int k = threadIdx.x + GROUP_SIZE; k < NUM_THREADS; k += GROUP_SIZE) {
                sums[i / SIZE][i % SIZE] += handed_in[i][k];
            }
        }
    }
}

// Writes a thread's sums, where n_left columns, or fewer than none, are left in the row
// from its first one on. A vector of 8 takes two accesses of 16 bytes: neighbouring
// threads exchange halves, so that each access fills sectors of 32 bytes, and all
// threads of a warp have to call this.
template <int STEP, int SIZE, int COUNT>
__device__ __forceinline__ void store_sums(
    float* ptr, int64_t n_left, const Tile<float, SIZE, COUNT>& sums
) {
    if constexpr (SIZE < 8) {
        store_row<STEP>(ptr, n_left, sums);
    } else {
        const bool is_odd = threadIdx.x % 2 == 1;
        if (is_odd) ptr -= 4, n_left += 4;
        #pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            Vec<float, 4> first, second;
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float given = is_odd ? sums[i][j] : sums[i][j + 4];
                const float taken = __shfl_xor_sync(0xffffffff, given, 1);
                first[j] = is_odd ? taken : sums[i][j];
                second[j] = is_odd ? sums[i][j + 4] : taken;
            }
            if (i * STEP < n_left) store(ptr + i * STEP, first);
            if (i * STEP + 8 < n_left) store(ptr + i * STEP + 8, second);
        }
    }
}
