// Tiles that several blocks share, so that all multiprocessors are at work until the end.
//
// Where whole tiles would leave the last wave thin, the tiles of it, perhaps with those of
// another wave, are cut along k: blocks take equal numbers of their steps. Each leaves the sums
// of its part of a tile in memory, and a second launch adds them, always in the same order.
// Nobody waits for another block. A part of 128 x 256 sums is 128 KB. It is written once and
// read once, from the L2.
#pragma once

#include "common/epilogue.cuh"
#include "common/launch.cuh"
#include "common/ptx/griddepcontrol.cuh"
#include "common/vec.cuh"
#include "matmul/tiles.cuh"

namespace parts {
constexpr int NUM_THREADS = 256;
constexpr int VEC_SIZE = 4;
}  // namespace parts

// Adds the parts of tiles, and finishes them. NUM_GROUPS threads share a vector of a tile: each
// adds every NUM_GROUPS-th part, so that many are on their way at a time.
template <typename T, int NUM_GROUPS>
__global__ void __launch_bounds__(parts::NUM_THREADS) matmul_sum_kernel(
    T* __restrict__ out_ptr,  // (n_batches, M, N)
    const float* parts_ptr,   // (2 * n_blocks, block_m, block_n), just written
    const T* bias_ptr,        // (N), or null
    int M, int N, int block_m, int block_n, int n_streamed, int n_steps, int n_blocks,
    int activation
) {
    using namespace parts;
    using Sums = Vec<float, VEC_SIZE>;
    __shared__ Sums shared_sums[NUM_THREADS];

    // -- tile: a block has NUM_VECS vectors of a tile that is in parts
    ptx::griddepcontrol_launch_dependents();
    constexpr int NUM_VECS = NUM_THREADS / NUM_GROUPS;
    const int tile = blockIdx.y;
    const int group = threadIdx.x / NUM_VECS;
    const int index = (blockIdx.x * NUM_VECS + threadIdx.x % NUM_VECS) * VEC_SIZE;
    const Parts parts{n_streamed, n_steps, n_blocks};
    const int first_block = parts.block_of(tile * n_steps);
    const int last_block = parts.block_of((tile + 1) * n_steps - 1);
    // Also where there is nothing to add: a launch behind this one waits for this one alone.
    ptx::griddepcontrol_wait();
    if (first_block == last_block) return;

    // -- compute: each group its parts, then the groups in their order
    Sums sums = splat<VEC_SIZE>(-0.0f);  // adds nothing, not even a sign
    const auto add = [&](const Sums& others) {
        for (int i = 0; i < VEC_SIZE; ++i) sums[i] += others[i];
    };
    #pragma unroll 8
    for (int block = first_block + group; block <= last_block; block += NUM_GROUPS) {
        const int64_t place = parts.place_of(block, tile);
        add(load<VEC_SIZE>(parts_ptr + place * block_m * block_n + index, true, 0.0f));
    }
    if constexpr (NUM_GROUPS > 1) {
        shared_sums[threadIdx.x] = sums;
        __syncthreads();
        if (group > 0) return;
        for (int i = 1; i < NUM_GROUPS; ++i)
            add(shared_sums[i * NUM_VECS + threadIdx.x]);
    }

    // -- store: after the epilogue, rounded once
    const int n_tile_rows = (M - 1) / block_m + 1, n_tile_cols = (N - 1) / block_n + 1;
    const TileOrigin origin = tile_at(tile, n_tile_rows, n_tile_cols, block_m, block_n);
    const int row = origin.row + index / block_n, col = origin.col + index % block_n;
    const int n_valid = row < M ? N - col : 0;
    const auto bias = load<VEC_SIZE>(
        bias_ptr + col, bias_ptr ? n_valid : 0, T{},
        reinterpret_cast<uintptr_t>(bias_ptr) % (VEC_SIZE * sizeof(T)) == 0
    );
    const float bias_scale = argument_scale<T>(Activation{activation});
    dispatch_activation(Activation{activation}, [&]<Activation ACTIVATION>() {
        for (int i = 0; i < VEC_SIZE; ++i) {
            sums[i] = epilogue<ACTIVATION, T>(sums[i], bias_scale * to_float(bias[i]));
        }
    });
    const bool is_aligned =
        N % VEC_SIZE == 0 &&
        reinterpret_cast<uintptr_t>(out_ptr) % (VEC_SIZE * sizeof(T)) == 0;
    store(
        out_ptr + (int64_t{origin.batch} * M + row) * N + col, from_float<T>(sums),
        n_valid, is_aligned
    );
}
