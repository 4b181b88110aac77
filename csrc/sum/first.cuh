// The first rung: a block owns an output element, and adds up what is reduced to it.
//
// Neighbouring threads read neighbours of the reduced dimension. Where these are no
// neighbours in memory, a warp's loads are not coalesced.
#pragma once

#include "common/reduce.cuh"

template <typename T>
__global__ void sum_first_kernel(
    T* out_ptr,      // (n_outer, n_inner)
    const T* x_ptr,  // (n_outer, n_reduced, n_inner)
    int64_t n_reduced, int64_t n_inner, int64_t x_stride_outer,
    int64_t x_stride_reduced, int64_t x_stride_inner
) {
    // -- tile: a block owns an output element
    const int64_t outer = blockIdx.x / n_inner, inner = blockIdx.x % n_inner;
    x_ptr += outer * x_stride_outer + inner * x_stride_inner;

    // -- accumulate: a thread adds every blockDim.x-th element
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < n_reduced; i += blockDim.x) {
        sum += to_float(x_ptr[i * x_stride_reduced]);
    }

    // -- reduce: the sums of the threads
    sum = block_reduce<FIRST_NUM_THREADS>(sum, Sum{});

    // -- store: rounded once
    if (threadIdx.x == 0) out_ptr[blockIdx.x] = from_float<T>(sum);
}
