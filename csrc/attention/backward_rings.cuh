// What the backward's kernels for Hopper have in common: how their shared memory is filled, and
// how sums leave their registers.
#pragma once

#include "attention/ring.cuh"
#include "attention/store.cuh"
#include "common/launch.cuh"
#include "common/math.cuh"

namespace twin {

// What probabilities are computed from: lse in units of log 2. A row without keys, and one
// behind the last, has inf: its exponentials are 0 then, those of hidden scores too.
__device__ __forceinline__ float lse_to_log2(float lse) {
    return lse == -INFINITY ? INFINITY : lse * LOG2_E;
}

// All have two warpgroups that multiply, and one that loads.
constexpr int BACKWARD_CONSUMERS = 2;
constexpr int BACKWARD_NUM_THREADS = (BACKWARD_CONSUMERS + 1) * WARPGROUP_SIZE;
constexpr int BACKWARD_CONSUMER_WARPS = BACKWARD_CONSUMERS * WARPGROUP_SIZE / WARP_SIZE;
// In attention_backward_keys_kernel a warp loads, which reads lse and delta as well; in the
// two others, which have the second pair, one thread does.
constexpr int KEYS_CONSUMER_REGISTERS = 232, KEYS_PRODUCER_REGISTERS = 40;
constexpr int QUERIES_CONSUMER_REGISTERS = 240, QUERIES_PRODUCER_REGISTERS = 24;

// The keys that a block owns stay, and their gradients take their place in the end; queries
// and gradients come by rings, with lse (in units of log 2) and delta of each row. Each warp
// reads those, and tells the producer when it has used a stage.
template <int HEAD_DIM, int BLOCK_M, int BLOCK_N, int NUM_STAGES>
struct BackwardKeysShared {
    static constexpr int BOXES = HEAD_DIM / BOX_SIZE;

    Box k[BLOCK_N / BOX_SIZE][BOXES];
    Box v[BLOCK_N / BOX_SIZE][BOXES];
    Ring<HEAD_DIM, BLOCK_M, NUM_STAGES> q;
    Ring<HEAD_DIM, BLOCK_M, NUM_STAGES> grad;
    alignas(16) float lse[NUM_STAGES][BLOCK_M];
    alignas(16) float delta[NUM_STAGES][BLOCK_M];
    uint64_t keys_full;

    __device__ void begin() {
        begin_ring(q, BACKWARD_CONSUMER_WARPS);
        begin_ring(grad, BACKWARD_CONSUMER_WARPS);
        ptx::mbarrier_init(&keys_full, 1);
        ptx::fence_mbarrier_init();
    }
};

// The queries that a block owns stay, and their gradients take their place in the end.
template <int HEAD_DIM, int BLOCK_M, int BLOCK_N, int K_STAGES, int V_STAGES>
struct BackwardQueriesShared {
    static constexpr int BOXES = HEAD_DIM / BOX_SIZE;

    Box q[BLOCK_M / BOX_SIZE][BOXES];
    Box grad[BLOCK_M / BOX_SIZE][BOXES];
    Ring<HEAD_DIM, BLOCK_N, K_STAGES> k;
    Ring<HEAD_DIM, BLOCK_N, V_STAGES> v;
    uint64_t queries_full;

    __device__ void begin() {
        begin_ring(k, BACKWARD_CONSUMERS);
        begin_ring(v, BACKWARD_CONSUMERS);
        ptx::mbarrier_init(&queries_full, 1);
        ptx::fence_mbarrier_init();
    }
};

// Starts to load the two matrices of which a block owns the rows from `row` on.
template <int NUM_BOXES, int BOXES>
__device__ __forceinline__ void load_own_rows(
    Box (&first)[NUM_BOXES][BOXES], Box (&second)[NUM_BOXES][BOXES],
    const TensorMap4D& first_map, const TensorMap4D& second_map, int row, int head,
    int batch, uint64_t* full
) {
    ptx::mbarrier_arrive_expect_bytes(full, sizeof(first) + sizeof(second));
    for (int i = 0; i < NUM_BOXES; ++i) {
        load_rows(first[i], first_map, row + i * BOX_SIZE, head, batch, full);
        load_rows(second[i], second_map, row + i * BOX_SIZE, head, batch, full);
    }
}

// The warp that loads for attention_backward_keys_kernel. It reads lse and delta by itself,
// before it waits for a free stage, as they begin at any multiple of 4 bytes.
template <int HEAD_DIM, int BLOCK_M, int BLOCK_N, int NUM_STAGES>
struct BackwardKeysProducer {
    BackwardKeysShared<HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES>& shared;
    RingPosition<NUM_STAGES> position{};

    // BLOCK_M queries of a head, to which lse_ptr and delta_ptr belong.
    __device__ void load_step(
        const TensorMap4D& q_map, const TensorMap4D& grad_map, const float* lse_ptr,
        const float* delta_ptr, int row, int n_queries, int head, int batch
    ) {
        constexpr int ROWS = BLOCK_M / WARP_SIZE;
        const int lane = threadIdx.x % WARP_SIZE, stage = position.stage;
        float lse[ROWS], delta[ROWS];
        #pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            const int query = row + i * WARP_SIZE + lane;
            lse[i] = query < n_queries ? lse_ptr[query] : -INFINITY;
            delta[i] = query < n_queries ? delta_ptr[query] : 0.0f;
        }
        const auto load = [&](auto& ring, const TensorMap4D& map, auto& to,
                              auto value) {
            ptx::mbarrier_wait(&ring.empty[stage], position.parity ^ 1);
            #pragma unroll
            for (int i = 0; i < ROWS; ++i) to[stage][i * WARP_SIZE + lane] = value(i);
            __syncwarp();
            if (lane == 0) load_stage(ring, position, map, row, head, batch);
        };
        load(shared.q, q_map, shared.lse, [&](int i) { return lse_to_log2(lse[i]); });
        load(shared.grad, grad_map, shared.delta, [&](int i) { return delta[i]; });
        position.advance();
    }
};

// Stores a warpgroup's sums, which are 64 rows of a gradient, by way of boxes that all of the
// NUM_THREADS threads at a barrier have read by then.
template <typename T, int HEAD_DIM, int NUM_THREADS>
__device__ __forceinline__ void store_gradient(
    const TensorMap4D& map, const float (&sums)[HEAD_DIM / 8][2][2], float factor,
    Box (&boxes)[HEAD_DIM / BOX_SIZE], int row, int head, int batch, int barrier
) {
    const int thread = threadIdx.x % WARPGROUP_SIZE;
    ptx::named_barrier_sync(barrier, NUM_THREADS);
    store_rows<T, HEAD_DIM>(boxes, sums, {factor, factor}, thread);
    ptx::fence_async_proxy();
    ptx::named_barrier_sync(barrier, NUM_THREADS);
    if (thread == 0) {
        for (int i = 0; i < HEAD_DIM / BOX_SIZE; ++i) {
            ptx::tma_store(&map.map, i * BOX_SIZE, row, head, batch, &boxes[i]);
        }
        ptx::tma_store_commit_group();
    }
}

}  // namespace twin
