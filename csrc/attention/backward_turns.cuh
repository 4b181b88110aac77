// Turns of attention_backward_kernel's blocks: each adds its parts of queries' gradients when
// all blocks of keys before it have added theirs. Sums are then of the same order in every
// call, and have the same bits.
//
// A thread of its own asks whether the turn of the block has come, while the others multiply,
// and one more passes it on. Blocks take queries from the last ones back to the first, which
// all of them do at about the same time, each a step behind the one before. They start in the
// order of their keys: so nobody waits for a block that has not started.
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

// By one thread: asks before each step whether all others that come first have added theirs.
// sums_at tells where the sums of a step are.
template <int BLOCK_M, int BLOCK_N, typename SumsAt>
__device__ void ask_for_turns(
    Turn& turn, SumsAt sums_at, int n_sharing, const KeyTile& tile, const Window& window
) {
    QueryStep at = tile.begin<BLOCK_M>();
    for (int step = 0; step < n_sharing * tile.n_steps; ++step) {
        const int first_key = window.of_query(at.row).first;
        const int n_before = tile.key / BLOCK_N - first_key / BLOCK_N;
        while (ptx::load_acquire(&sums_at(at)->n_added) != n_before) {
        }
        ptx::mbarrier_arrive(&turn.has_come);
        turn.wait(step);
        at.advance<BLOCK_M>(n_sharing);
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
    for (int step = 0; step < n_sharing * tile.n_steps; ++step) {
        ptx::mbarrier_wait(&turn.is_over, step % 2);
        ptx::mbarrier_arrive(&turn.has_come);
        ptx::add_release(&sums_at(at)->n_added, 1);
        at.advance<BLOCK_M>(n_sharing);
    }
}

}  // namespace twin
