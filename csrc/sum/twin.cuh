// The twin: a block reads neighbouring columns of several rows at a time, and walks down
// the rows.
//
// It is for columns: the inner dimension is contiguous, or steps less than the reduced one.
#pragma once

#include "common/reduce.cuh"
#include "common/tile.cuh"

constexpr int NUM_THREADS = 256;
// A thread has so much in flight. In the blocks that the bounds ask for on a multiprocessor
// these are 64 KB, twice what keeps an H200's memory busy.
constexpr int BYTES_PER_THREAD = 64;
constexpr int BLOCKS_PER_SM = 4;

template <typename In, typename Out, int VEC_SIZE>
__global__ void __launch_bounds__(NUM_THREADS, BLOCKS_PER_SM) sum_kernel(
    Out* __restrict__ out_ptr,     // (n_splits, n_outer, n_inner)
    const In* __restrict__ x_ptr,  // (n_outer, n_reduced, n_inner)
    int64_t n_outer, int64_t n_reduced, int64_t n_inner, int64_t x_stride_outer,
    int64_t x_stride_reduced, int64_t x_stride_inner, int64_t split_size
) {
    constexpr int ROWS_PER_THREAD = BYTES_PER_THREAD / (VEC_SIZE * sizeof(In));

    // -- tile: a block owns neighbouring columns of one outer index, and one split; a
    // thread owns the vector at col of every blockDim.y-th row
    const unsigned n_tiles = gridDim.x / static_cast<unsigned>(n_outer);
    const int64_t outer = blockIdx.x / n_tiles;
    const int64_t tile = blockIdx.x % n_tiles;
    const int64_t col = (tile * blockDim.x + threadIdx.x) * VEC_SIZE;
    const int64_t split_start = blockIdx.y * split_size;
    const int64_t n_rows = min(n_reduced - split_start, split_size);
    // There is no column behind the last one, but that one may be read again.
    x_ptr += outer * x_stride_outer + (split_start + threadIdx.y) * x_stride_reduced +
             min(col, n_inner - VEC_SIZE) * x_stride_inner;
    out_ptr += (blockIdx.y * n_outer + outer) * n_inner + col;

    // -- accumulate: what is read of a column at a time in pairs, then to its sum
    Vec<float, VEC_SIZE> sum{};
    const int rows_per_load = blockDim.y;
    const int step = ROWS_PER_THREAD * rows_per_load;
    const auto add_rows = [&](int n_loads) {
        const auto x = load_row<VEC_SIZE, ROWS_PER_THREAD, 1>(
            x_ptr, n_loads, 0.0f, rows_per_load * x_stride_reduced
        );
        const auto sums = reduce_vectors(to_float(x), Sum{});
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) sum[j] += sums[j];
        x_ptr += step * x_stride_reduced;
    };
    int64_t n_left = n_rows - threadIdx.y;
    #pragma unroll 1
    for (; n_left > step - rows_per_load; n_left -= step) add_rows(ROWS_PER_THREAD);
    if (n_left > 0) add_rows((static_cast<int>(n_left) - 1) / rows_per_load + 1);

    // -- reduce: the sums of a column
    sum = column_reduce<NUM_THREADS>(sum, Sum{});

    // -- store: rounded once
    if (threadIdx.y == 0 && col < n_inner) store(out_ptr, from_float<Out>(sum));
}
