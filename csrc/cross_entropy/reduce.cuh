// The second launch, where the losses are added up: one block adds what the blocks of the
// first one have left, in an order that is the same in every run.
#pragma once

#include "common/reduce.cuh"

constexpr int REDUCE_NUM_THREADS = 1024;

template <typename T>
__global__ void __launch_bounds__(REDUCE_NUM_THREADS) cross_entropy_reduce_kernel(
    T* __restrict__ loss_ptr,               // ()
    float* __restrict__ n_counted_ptr,      // ()
    const float* __restrict__ partial_ptr,  // (n_blocks, 2)
    int64_t n_blocks, bool mean
) {
    // -- tile: the block owns everything; a vector holds what two blocks have left
    const int64_t n_values = 2 * n_blocks;
    Vec<float, 2> total{};

    // -- accumulate: losses, and the rows that count; a thread has four loads in flight
    #pragma unroll 4
    for (int64_t i = 4 * threadIdx.x; i < n_values; i += 4 * REDUCE_NUM_THREADS) {
        const auto partial = load<4>(partial_ptr + i, n_values - i, 0.0f);
        total[0] += partial[0] + partial[2];
        total[1] += partial[1] + partial[3];
    }

    // -- reduce: what the threads have
    const auto [loss, n_counted] =
        block_reduce<REDUCE_NUM_THREADS>(total, Sum{}).values;

    // -- store: rounded once; the mean of no rows is 0 / 0
    if (threadIdx.x > 0) return;
    *loss_ptr = from_float<T>(mean ? loss / n_counted : loss);
    *n_counted_ptr = n_counted;
}
