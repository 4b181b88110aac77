// The rings of stages in shared memory through which keys and values come to
// attention_kernel, and the thread that fills them. The backward's kernels have such rings
// too; backward_rings.cuh has the rest of theirs.
#pragma once

#include "attention/tile_order.cuh"
#include "common/ptx/named_barrier.cuh"
#include "common/ptx/tma_4d.cuh"
#include "common/tensor_map_4d.cuh"
#include "matmul/ring.cuh"

namespace twin {

// A thread's registers, of which a block has 65536: it takes many to multiply, few to load.
template <int BLOCK_M>
constexpr int CONSUMER_REGISTERS = NUM_CONSUMERS<BLOCK_M> == 3 ? 160 : 232;
template <int BLOCK_M>
constexpr int PRODUCER_REGISTERS = NUM_CONSUMERS<BLOCK_M> == 3 ? 32 : 40;

// Boxes that rows lie in. The last one may have columns that products leave out.
template <int HEAD_DIM>
constexpr int BOXES_OF_ROW = (HEAD_DIM + BOX_SIZE - 1) / BOX_SIZE;

// BLOCK_N rows of k or v, of 64 columns.
template <int BLOCK_N>
struct alignas(1024) KeyBox {
    unsigned char bytes[BLOCK_N * ROW_BYTES];
};

// Stages that hold a tile of k or v each. `full` tells the consumers that one has come,
// `empty` tells the producer that all of them have used it.
template <int HEAD_DIM, int BLOCK_N, int NUM_STAGES>
struct Ring {
    KeyBox<BLOCK_N> stages[NUM_STAGES][BOXES_OF_ROW<HEAD_DIM>];
    uint64_t full[NUM_STAGES];
    uint64_t empty[NUM_STAGES];

    __device__ void wait_until_full(const RingPosition<NUM_STAGES>& position) {
        ptx::mbarrier_wait(&full[position.stage], position.parity);
    }

    // By one thread of each warpgroup, or of each warp if `empty` waits for as many, once
    // these have used the stage; all go to the next one.
    __device__ void release(RingPosition<NUM_STAGES>& position, bool is_the_one) {
        if (is_the_one) ptx::mbarrier_arrive(&empty[position.stage]);
        position.advance();
    }
};

template <int HEAD_DIM, int BLOCK_N, int NUM_STAGES>
__device__ __forceinline__ void begin_ring(
    Ring<HEAD_DIM, BLOCK_N, NUM_STAGES>& ring, int n_releases
) {
    for (int stage = 0; stage < NUM_STAGES; ++stage) {
        ptx::mbarrier_init(&ring.full[stage], 1);
        ptx::mbarrier_init(&ring.empty[stage], n_releases);
    }
}

// A block's shared memory, of 227 KB at most. Long rows of q leave no room for those of out,
// which go where q was; shorter ones have their own, so that the next q comes sooner.
template <int HEAD_DIM, int BLOCK_M, int BLOCK_N, int NUM_STAGES>
struct AttentionShared {
    static constexpr int BOXES = BOXES_OF_ROW<HEAD_DIM>,
                         CONSUMERS = NUM_CONSUMERS<BLOCK_M>;
    static constexpr bool OUT_IS_Q = HEAD_DIM > 128;

    Box rows[OUT_IS_Q ? 1 : 2][CONSUMERS][BOXES];
    Ring<HEAD_DIM, BLOCK_N, NUM_STAGES> k;
    Ring<HEAD_DIM, BLOCK_N, NUM_STAGES> v;
    uint64_t q_full;
    uint64_t q_empty;
    uint64_t tile_full;
    uint64_t tile_empty;
    QueryTile tile;  // the next one

    using Rows = Box[BOXES];
    __device__ Rows& q(int warpgroup) { return rows[0][warpgroup]; }
    __device__ Rows& out(int warpgroup) { return rows[OUT_IS_Q ? 0 : 1][warpgroup]; }

    __device__ void begin() {
        begin_ring(k, CONSUMERS);
        begin_ring(v, CONSUMERS);
        ptx::mbarrier_init(&q_full, 1);
        ptx::mbarrier_init(&q_empty, CONSUMERS);
        ptx::mbarrier_init(&tile_full, 1);
        ptx::mbarrier_init(&tile_empty, CONSUMERS);
        ptx::fence_mbarrier_init();
    }
};

// Starts to load rows of a head, from `row` on: a box for each 64 columns.
template <typename AnyBox, int NUM_BOXES>
__device__ __forceinline__ void load_rows(
    AnyBox (&boxes)[NUM_BOXES], const TensorMap4D& map, int row, int head, int batch,
    uint64_t* full
) {
    for (int i = 0; i < NUM_BOXES; ++i) {
        ptx::tma_load(&boxes[i], &map.map, i * BOX_SIZE, row, head, batch, full);
    }
}

// Starts to load a stage as soon as all consumers have used what was there.
template <int HEAD_DIM, int BLOCK_N, int NUM_STAGES>
__device__ __forceinline__ void load_stage(
    Ring<HEAD_DIM, BLOCK_N, NUM_STAGES>& ring, const RingPosition<NUM_STAGES>& position,
    const TensorMap4D& map, int row, int head, int batch
) {
    uint64_t* full = &ring.full[position.stage];
    ptx::mbarrier_wait(&ring.empty[position.stage], position.parity ^ 1);
    ptx::mbarrier_arrive_expect_bytes(full, sizeof(ring.stages[0]));
    load_rows(ring.stages[position.stage], map, row, head, batch, full);
}

// The thread that loads, each stage as soon as all consumers have used what was there.
template <int HEAD_DIM, int BLOCK_M, int BLOCK_N, int NUM_STAGES>
struct Producer {
    AttentionShared<HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES>& shared;
    RingPosition<NUM_STAGES> k_position{}, v_position{};
    RingPosition<1> q_position{}, tile_position{};

    // Keys are needed, and come, a step earlier than their values.
    __device__ void load_tile(
        const QueryTile& tile, int kv_head, const TensorMap4D& q_map,
        const TensorMap4D& k_map, const TensorMap4D& v_map
    ) {
        for (int step = 0; step <= tile.n_steps; ++step) {
            const int key = tile.last_key - step * BLOCK_N;
            if (step < tile.n_steps) {
                load_stage(shared.k, k_position, k_map, key, kv_head, tile.batch);
                k_position.advance();
            }
            if (step > 0) {
                const int last_key = key + BLOCK_N;
                load_stage(shared.v, v_position, v_map, last_key, kv_head, tile.batch);
                v_position.advance();
                continue;
            }
            ptx::mbarrier_wait(&shared.q_empty, q_position.parity ^ 1);
            ptx::mbarrier_arrive_expect_bytes(&shared.q_full, sizeof(shared.rows[0]));
            for (int i = 0; i < NUM_CONSUMERS<BLOCK_M>; ++i) {
                const int row = tile.row + i * BOX_SIZE;
                load_rows(
                    shared.q(i), q_map, row, tile.head, tile.batch, &shared.q_full
                );
            }
            q_position.advance();
        }
    }

    // Tells the consumers what comes next, so that each need not compute it.
    __device__ void tell(const QueryTile& tile) {
        ptx::mbarrier_wait(&shared.tile_empty, tile_position.parity ^ 1);
        shared.tile = tile;
        ptx::mbarrier_arrive(&shared.tile_full);
        tile_position.advance();
    }
};

}  // namespace twin
