// Tiles that several blocks share, so that all multiprocessors are at work until the end.
//
// Where whole tiles would leave the last wave thin, the tiles of it, perhaps with those of
// another wave, are cut along k: blocks take equal numbers of their steps. Each leaves the sums
// of its part of a tile in memory. Whoever comes last to the tile adds all parts, in their
// order, so that the result never depends on who that was. Nobody waits for another block.
// A part of 128 x 256 sums is 128 KB. It is written once, and mostly read once, from the L2.
#pragma once

#include <cstddef>

#include "common/launch.cuh"
#include "matmul/ring.cuh"

// Starts the counts of the parts that are there. What T is does not matter here.
template <typename T>
__global__ void matmul_count_kernel(
    int* __restrict__ n_arrived_ptr,  // (n_counts)
    int n_counts
) {
    // -- tile: one block for all counts
    // -- store: no part is there yet
    for (int i = threadIdx.x; i < n_counts; i += blockDim.x) n_arrived_ptr[i] = 0;
}

namespace twin {

constexpr int COUNT_THREADS = 256;  // of matmul_count_kernel

// A block's shared memory.
template <int BLOCK_M, int BLOCK_N, int NUM_STAGES>
struct MatmulShared : Shared<BLOCK_M, BLOCK_N, NUM_STAGES> {
    // A word by which one thread of a warpgroup tells the others that it came last to a tile.
    // It lies in the bytes that the alignment of boxes leaves at the end.
    __device__ int* is_last(int warpgroup) {
        using Members = Shared<BLOCK_M, BLOCK_N, NUM_STAGES>;
        constexpr int END = offsetof(Members, turn) + sizeof(uint64_t);
        static_assert(END + NUM_CONSUMERS<BLOCK_M> * sizeof(int) <= sizeof(Members));
        return reinterpret_cast<int*>(&this->turn + 1) + warpgroup;
    }
};

template <int BLOCK_M, int BLOCK_N, int NUM_STAGES>
__device__ __forceinline__ void init_barriers(
    MatmulShared<BLOCK_M, BLOCK_N, NUM_STAGES>& shared
) {
    for (int stage = 0; stage < NUM_STAGES; ++stage) {
        ptx::mbarrier_init(&shared.full[stage], 1);
        ptx::mbarrier_init(&shared.empty[stage], NUM_CONSUMERS<BLOCK_M>);
    }
    ptx::mbarrier_init(&shared.turn, 1);
    ptx::fence_mbarrier_init();
}

// What a block multiplies in one go: the steps of a tile along k, mostly all of them.
struct Part {
    int tile;
    int first_step;
    int n_steps;
};

// Which parts a block takes. The steps of the first n_streamed tiles, counted tile by tile, are
// shared out among all blocks; of the other tiles a block takes every gridDim.x-th.
struct Parts {
    int n_streamed;
    int n_steps;  // of a tile

    // The streamed steps that blocks before this one take.
    __device__ int start_of(int block) const {
        const int n = n_streamed * n_steps, n_blocks = gridDim.x;
        return n / n_blocks * block + min(n % n_blocks, block);
    }

    // The block that takes a streamed step.
    __device__ int block_of(int step) const {
        const int n = n_streamed * n_steps, n_blocks = gridDim.x;
        const int share = n / n_blocks, n_longer = n % n_blocks;  // by one step
        return step < n_longer * (share + 1) ? step / (share + 1)
                                             : (step - n_longer) / share;
    }

    __device__ Part first() const {
        const int block = blockIdx.x;
        if (n_streamed == 0) return {block, 0, n_steps};
        const int start = start_of(block);
        return streamed(start / n_steps, start % n_steps);
    }

    __device__ Part next(const Part& part) const {
        if (part.tile < n_streamed) return streamed(part.tile + 1, 0);
        return {part.tile + static_cast<int>(gridDim.x), 0, n_steps};
    }

    // The part from this step on, or else the block's first whole tile.
    __device__ Part streamed(int tile, int step) const {
        const int block = blockIdx.x;
        const int n_left = start_of(block + 1) - tile * n_steps - step;
        if (n_left > 0) return {tile, step, min(n_steps - step, n_left)};
        return {n_streamed + block, 0, n_steps};
    }
};

// Leaves a warpgroup's sums of a part of a tile, and returns whether all parts are there: then
// `sums` are those of the tile.
template <int BLOCK_M, int SIZE>
__device__ __forceinline__ bool add_parts(
    float (&sums)[SIZE], const Parts& parts, int tile, float* parts_ptr,
    int* n_arrived_ptr, int* is_last, int warpgroup, int thread
) {
    const int first_step = tile * parts.n_steps;
    const int first_block = parts.block_of(first_step);
    const int n_parts =
        parts.block_of(first_step + parts.n_steps - 1) - first_block + 1;
    const int own = blockIdx.x - first_block;
    // A block has two places, the second one for a tile that it does not begin with.
    const auto place_of = [&](int block) {
        const int place = 2 * block + (parts.start_of(block) < first_step);
        return reinterpret_cast<float4*>(parts_ptr) + thread +
               (place * NUM_CONSUMERS<BLOCK_M> + warpgroup) * WARPGROUP_SIZE * SIZE / 4;
    };

    float4* const own_place = place_of(blockIdx.x);
    #pragma unroll
    for (int i = 0; i < SIZE; i += 4) {
        const float4 vec{sums[i], sums[i + 1], sums[i + 2], sums[i + 3]};
        __stcg(own_place + i / 4 * WARPGROUP_SIZE, vec);
    }
    ptx::named_barrier_sync(1 + warpgroup, WARPGROUP_SIZE);
    if (thread == 0) {
        __threadfence();  // what the others have written, before the count
        int* const count = n_arrived_ptr + tile * NUM_CONSUMERS<BLOCK_M> + warpgroup;
        *is_last = atomicAdd(count, 1) == n_parts - 1;
        __threadfence();  // the count, before what is read
    }
    ptx::named_barrier_sync(1 + warpgroup, WARPGROUP_SIZE);
    if (*is_last == 0) return false;

    // The sum of the first two parts is the same in either order, so that only a later one
    // has to be read back.
    const bool reads_own = own > 1;
    #pragma unroll
    for (int i = 0; i < SIZE; ++i) {
        if (reads_own) sums[i] = -0.0f;  // adds nothing, not even a sign
    }
    for (int part = 0; part < n_parts; ++part) {
        if (part == own && !reads_own) continue;
        const float4* const place = place_of(first_block + part);
        #pragma unroll
        for (int i = 0; i < SIZE; i += 4) {
            const float4 vec = __ldcg(place + i / 4 * WARPGROUP_SIZE);
            sums[i] += vec.x, sums[i + 1] += vec.y;
            sums[i + 2] += vec.z, sums[i + 3] += vec.w;
        }
    }
    return true;
}

}  // namespace twin
