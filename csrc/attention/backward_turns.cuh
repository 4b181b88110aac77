// Turns of attention_backward_kernel's blocks: each adds its parts of queries' gradients when
// all blocks of a head's keys that were taken before have added theirs. Sums are then of the
// same order in every call, and have the same bits. Nobody waits for a block that has not
// started.
//
// A thread of its own asks whether the turn of the block has come, while the others multiply,
// and one more passes it on. If keys are taken from the first ones on, all blocks begin with
// the last queries at about the same time, and each is a step behind the one before. Causal
// keys have few queries, and soon others take their place, which begin together again. So
// these are taken from the last ones back, and each block begins with the first queries that
// see its keys: the block before has begun with the queries behind, and nobody waits.
#pragma once

#include "attention/backward_sums.cuh"
#include "common/ptx/reduction.cuh"

namespace twin {

// What consumers wait for before they add the part of a step, and what they tell thereafter.
struct Turn {
    uint64_t has_come;
    uint64_t is_over;

    __device__ void begin() {
        ptx::mbarrier_init(&has_come, 2);
        ptx::mbarrier_init(&is_over, BACKWARD_CONSUMER_WARPS);
    }

    __device__ void wait(int step) { ptx::mbarrier_wait(&has_come, step % 2); }

    // By all warps that add.
    __device__ void end() {
        __syncwarp();
        if (threadIdx.x % WARP_SIZE == 0) ptx::mbarrier_arrive(&is_over);
    }
};

// How many blocks add to the sums of a step before the one of a tile.
template <int BLOCK_M, int BLOCK_N>
__device__ __forceinline__ int count_before(
    const KeyTile& tile, const QueryStep& at, const Window& window
) {
    const int last_row = min(at.row + BLOCK_M, window.n_queries) - 1;
    const int first_key = window.of_query(at.row).first;
    const int last_key = window.of_query(last_row).end - 1;
    return tile.is_from_last ? last_key / BLOCK_N - tile.key / BLOCK_N
                             : tile.key / BLOCK_N - first_key / BLOCK_N;
}

// By one thread: asks before each step whether all others that come first have added theirs.
// sums_at tells where the sums of a step are.
template <int BLOCK_M, int BLOCK_N, typename SumsAt>
__device__ void ask_for_turns(
    Turn& turn, SumsAt sums_at, int n_sharing, const KeyTile& tile, const Window& window
) {
    QueryStep at = tile.begin<BLOCK_M>();
    #pragma unroll 1
    for (int step = 0; step < n_sharing * tile.n_steps; ++step) {
        const int n_before = count_before<BLOCK_M, BLOCK_N>(tile, at, window);
        while (ptx::load_acquire(&sums_at(at)->n_added) != n_before) {
        }
        ptx::mbarrier_arrive(&turn.has_come);
        turn.wait(step);
        at.advance(n_sharing);
    }
}

// By another one: lets the next step come once all have added theirs, and tells the next block,
// which takes longer: it waits for what has been added to be in memory. Meanwhile one step can
// come and be over, and no second one, as each needs this thread to let it.
template <int BLOCK_M, typename SumsAt>
__device__ void pass_turns_on(
    Turn& turn, SumsAt sums_at, int n_sharing, const KeyTile& tile
) {
    QueryStep at = tile.begin<BLOCK_M>();
    ptx::mbarrier_arrive(&turn.has_come);
    #pragma unroll 1
    for (int step = 0; step < n_sharing * tile.n_steps; ++step) {
        ptx::mbarrier_wait(&turn.is_over, step % 2);
        ptx::mbarrier_arrive(&turn.has_come);
        ptx::add_release(&sums_at(at)->n_added, 1);
        at.advance(n_sharing);
    }
}

}  // namespace twin
