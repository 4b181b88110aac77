// The ring of stages in shared memory through which tiles of a and b come to matmul_kernel.
#pragma once

#include "common/ptx/barrier.cuh"
#include "common/ptx/tma.cuh"
#include "common/ptx/wgmma.cuh"
#include "common/tensor_map.cuh"

namespace twin {

// 64 rows of 64 elements: the unit of copies by the tensor memory accelerator, of
// multiplications by a warpgroup, and of stores.
constexpr int BOX_SIZE = 64;
constexpr int ROW_BYTES = 128;
constexpr int BLOCK_K = BOX_SIZE;
constexpr int WARPGROUP_SIZE = 128;

struct alignas(1024) Box {
    unsigned char bytes[BOX_SIZE * ROW_BYTES];
};

// Each 64 rows of a tile have a warpgroup that multiplies them; one more loads.
template <int BLOCK_M>
constexpr int NUM_CONSUMERS = BLOCK_M / BOX_SIZE;
template <int BLOCK_M>
constexpr int NUM_THREADS = (NUM_CONSUMERS<BLOCK_M> + 1) * WARPGROUP_SIZE;

// A block's shared memory, of 227 KB at most. `full` tells the consumers that a stage has
// come, `empty` tells the producer that all consumers have used it. `turn` tells the second
// consumer that the first one is nearly done with its tile.
template <int BLOCK_M, int BLOCK_N, int NUM_STAGES>
struct Shared {
    Box a[NUM_STAGES][BLOCK_M / BOX_SIZE];
    Box b[NUM_STAGES][BLOCK_N / BOX_SIZE];
    Box out[NUM_CONSUMERS<BLOCK_M>][2];
    float2 scaled_bias[NUM_CONSUMERS<BLOCK_M>][BLOCK_N / 2];  // of the tile's columns
    uint64_t full[NUM_STAGES];
    uint64_t empty[NUM_STAGES];
    uint64_t turn;
};

template <typename Shared>
__device__ __forceinline__ void init_barriers(Shared& shared, int n_releases) {
    for (uint64_t& full : shared.full) ptx::mbarrier_init(&full, 1);
    for (uint64_t& empty : shared.empty) ptx::mbarrier_init(&empty, n_releases);
    if constexpr (requires { shared.turn; }) ptx::mbarrier_init(&shared.turn, 1);
    ptx::fence_mbarrier_init();
}

// A stage, and the parity of its barriers' running phase.
template <int NUM_STAGES>
struct RingPosition {
    int stage = 0;
    int parity = 0;

    __device__ void advance() {
        if (++stage < NUM_STAGES) return;
        stage = 0;
        parity ^= 1;
    }
};

}  // namespace twin
