// Reductions over the threads that share a row, or a column.
#pragma once

#include "common/launch.cuh"
#include "common/vec.cuh"

struct Max {
    static constexpr float IDENTITY = -INFINITY;
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

struct Sum {
    static constexpr float IDENTITY = 0.0f;
    __device__ float operator()(float a, float b) const { return a + b; }
};

// Over groups of WIDTH neighbouring lanes of a warp, by butterfly: after the step with
// offset o every lane holds the result over its group of 2 * o lanes.
template <int WIDTH, typename Op>
__device__ __forceinline__ float warp_reduce(float value, Op op) {
    #pragma unroll
    for (int offset = WIDTH / 2; offset > 0; offset /= 2) {
        value = op(value, __shfl_xor_sync(0xffffffff, value, offset));
    }
    return value;
}

template <int N>
constexpr int NEXT_POWER_OF_2 = 2 * NEXT_POWER_OF_2<(N + 1) / 2>;
template <>
constexpr int NEXT_POWER_OF_2<1> = 1;

// SIZE results of each warp, in the same memory for all such reductions of a kernel.
template <int SIZE>
__device__ __forceinline__ Vec<float, SIZE>* warp_results() {
    __shared__ Vec<float, SIZE> results[WARP_SIZE];
    return results;
}

// Over groups of NUM_THREADS threads: within a warp, or over a whole block of any number
// of warps. All threads get the results. Several values take no more barriers than one.
template <int NUM_THREADS, int SIZE, typename Op>
__device__ __forceinline__ Vec<float, SIZE> block_reduce(
    Vec<float, SIZE> values, Op op
) {
    constexpr int WIDTH = NUM_THREADS < WARP_SIZE ? NUM_THREADS : WARP_SIZE;
    #pragma unroll
    for (int i = 0; i < SIZE; ++i) values[i] = warp_reduce<WIDTH>(values[i], op);
    if constexpr (NUM_THREADS > WARP_SIZE) {
        constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
        Vec<float, SIZE>* const results = warp_results<SIZE>();
        const int lane = threadIdx.x % WARP_SIZE;
        if (lane == 0) results[threadIdx.x / WARP_SIZE] = values;
        __syncthreads();
        // Every warp reduces the results of all for itself, which saves a second round
        // trip through shared memory and its barrier.
        constexpr int PADDED = NEXT_POWER_OF_2<NUM_WARPS>;
        const int warp = lane % PADDED;
        values = warp < NUM_WARPS ? results[warp] : splat<SIZE>(Op::IDENTITY);
        #pragma unroll
        for (int i = 0; i < SIZE; ++i) values[i] = warp_reduce<PADDED>(values[i], op);
        __syncthreads();  // the next reduction writes there again
    }
    return values;
}

template <int NUM_THREADS, typename Op>
__device__ __forceinline__ float block_reduce(float value, Op op) {
    return block_reduce<NUM_THREADS>(Vec<float, 1>{value}, op)[0];
}

// Over the threads of a block that have threadIdx.x in common, each with values of its
// own columns. With every step half of the rows of threads hand their values to the
// other half, until the first row has the result. Each place in shared memory is written
// once, so that one barrier a step is enough; a second call would need one before it.
template <int NUM_THREADS, int SIZE, typename Op>
__device__ __forceinline__ Vec<float, SIZE> column_reduce(
    Vec<float, SIZE> values, Op op
) {
    // What one access moves: a thread's values side by side would meet in the same banks.
    constexpr int PART = SIZE < 4 ? SIZE : 4;
    constexpr int NUM_PARTS = SIZE / PART;
    static_assert(SIZE % PART == 0);
    // (NUM_PARTS, blockDim.y, blockDim.x)
    __shared__ Vec<float, PART> handed_over[NUM_PARTS][NUM_THREADS];
    const int row = threadIdx.y, row_size = blockDim.x;
    const int own = row * row_size + threadIdx.x;
    for (int n_rows = blockDim.y; n_rows > 1; n_rows /= 2) {
        const int n_left = n_rows / 2;
        if (row >= n_left && row < n_rows) {
            #pragma unroll
            for (int j = 0; j < SIZE; ++j) {
                handed_over[j / PART][own][j % PART] = values[j];
            }
        }
        __syncthreads();
        if (row >= n_left) continue;
        #pragma unroll
        for (int j = 0; j < SIZE; ++j) {
            const Vec<float, PART>& others =
                handed_over[j / PART][own + n_left * row_size];
            values[j] = op(values[j], others[j % PART]);
        }
    }
    return values;
}
