// Reductions over the threads that share a row. Every one of them gets the result.
#pragma once

#include "common/launch.cuh"

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

// One result of each warp, in the same memory for all reductions of a kernel.
__device__ __forceinline__ float* warp_results() {
    __shared__ float results[WARP_SIZE];
    return results;
}

// Over groups of NUM_THREADS threads: within a warp, or else over the whole block.
template <int NUM_THREADS, typename Op>
__device__ __forceinline__ float block_reduce(float value, Op op) {
    if constexpr (NUM_THREADS <= WARP_SIZE) {
        return warp_reduce<NUM_THREADS>(value, op);
    } else {
        constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
        const int lane = threadIdx.x % WARP_SIZE;
        value = warp_reduce<WARP_SIZE>(value, op);
        if (lane == 0) warp_results()[threadIdx.x / WARP_SIZE] = value;
        __syncthreads();
        // Every warp reduces the results of all for itself, which saves a second round
        // trip through shared memory and its barrier.
        value = warp_reduce<NUM_WARPS>(warp_results()[lane % NUM_WARPS], op);
        __syncthreads();  // the next reduction writes there again
        return value;
    }
}
