// The twin's gradients of keys and values where rows are long: scores are computed transposed,
// keys by queries, so that what follows from them is in the registers from which it is
// multiplied again.
//
// A block owns keys, and takes the queries that see them, of all heads that share them. Sums of
// so many columns fill the registers: of the same keys one warpgroup sums up the gradients, and
// the other those of values. While one computes exponentials the tensor cores multiply for the
// other, and for itself: gradients by values then, and afterwards the sum together with the
// next step's scores. No other block adds to the sums: the same call gives the same bits.
#pragma once

#include "attention/backward_rings.cuh"
#include "attention/products.cuh"
#include "attention/softmax.cuh"

template <typename T, int HEAD_DIM, int BLOCK_M, int BLOCK_N, int NUM_STAGES>
__global__ void
__launch_bounds__(twin::BACKWARD_NUM_THREADS, 1) attention_backward_keys_kernel(
    // (n_batches, n_keys, n_kv_heads, head_dim)
    const __grid_constant__ TensorMap4D grad_k_map,
    const __grid_constant__ TensorMap4D grad_v_map,  // of grad_k's shape
    // (n_batches, n_queries, n_heads, head_dim)
    const __grid_constant__ TensorMap4D grad_map,
    const __grid_constant__ TensorMap4D q_map,  // of grad's shape
    const __grid_constant__ TensorMap4D k_map,  // of grad_k's shape
    const __grid_constant__ TensorMap4D v_map,  // of grad_k's shape
    const float* __restrict__ lse_ptr,          // (n_batches, n_heads, n_queries)
    const float* __restrict__ delta_ptr,        // (n_batches, n_heads, n_queries)
    int n_batches, int n_heads, int n_kv_heads, int n_queries, int n_keys,
    int heads_per_section, float scale, int window_left, int window_right
) {
#if defined(TWIN_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using namespace twin;
    static_assert(BLOCK_N == BOX_SIZE);
    using Shared = BackwardKeysShared<HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES>;
    DYNAMIC_SHARED(shared_bytes, 1024);
    auto& shared = *reinterpret_cast<Shared*>(shared_bytes);

    // -- tile: a block owns BLOCK_N keys of a head
    const Window window{n_queries, n_keys, window_left, window_right};
    const KeyTile tile = key_tile_at<BLOCK_M, BLOCK_N>(
        blockIdx.x, n_batches, n_kv_heads, heads_per_section, 0, window
    );
    const int n_sharing = n_heads / n_kv_heads;
    // Broadcast from one lane, so that the compiler knows it to be uniform in a warp.
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP_SIZE, 0);
    const int thread = threadIdx.x % WARPGROUP_SIZE;
    if (threadIdx.x == 0) shared.begin();
    __syncthreads();

    // -- load: by one warp
    if (warpgroup == BACKWARD_CONSUMERS) {
        ptx::setmaxnreg_dec<KEYS_PRODUCER_REGISTERS>();
        if (thread >= WARP_SIZE) return;
        if (thread == 0) {
            load_own_rows(
                shared.k, shared.v, k_map, v_map, tile.key, tile.kv_head, tile.batch,
                &shared.keys_full
            );
        }
        BackwardKeysProducer<HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES> producer{shared};
        for (int i = 0; i < n_sharing; ++i) {
            const int head = tile.kv_head * n_sharing + i;
            const int64_t row = (int64_t{tile.batch} * n_heads + head) * n_queries;
            for (int step = 0; step < tile.n_steps; ++step) {
                producer.load_step(
                    q_map, grad_map, lse_ptr + row, delta_ptr + row,
                    tile.first_row + step * BLOCK_M, n_queries, head, tile.batch
                );
            }
        }
        return;
    }

    ptx::setmaxnreg_inc<KEYS_CONSUMER_REGISTERS>();
    const int lane = thread % WARP_SIZE;
    const int key = tile.key + thread / WARP_SIZE * 16 + lane / 4;  // and 8 below
    const Queries upper = window.of_key(key), lower = window.of_key(key + 8);
    // The queries that see all keys of the block need no mask.
    const int seeing_from = window.of_key(tile.key + BLOCK_N - 1).first;
    const int seeing_to = window.of_key(tile.key).end;
    const uint64_t k = ptx::wgmma_descriptor(shared.k[0], 0, 8 * ROW_BYTES);
    const uint64_t v = ptx::wgmma_descriptor(shared.v[0], 0, 8 * ROW_BYTES);
    // A matrix of queries as the right one of a product whose result has a column for each
    // query, or of one that sums over queries.
    const auto by_query = [](const auto& ring, int stage) {
        return ptx::wgmma_descriptor(ring.stages[stage], 0, 8 * ROW_BYTES);
    };
    const auto over_queries = [](const auto& ring, int stage) {
        return ptx::wgmma_descriptor(
            ring.stages[stage], sizeof(KeyBox<BLOCK_M>), 8 * ROW_BYTES
        );
    };
    const float scale_log2 = scale * LOG2_E;
    RingPosition<NUM_STAGES> q_position, grad_position;

    float sums[HEAD_DIM / 8][2][2]{};  // of grad_k, or of grad_v
    float scores[BLOCK_M / 8][2][2], grad_p[BLOCK_M / 8][2][2];
    uint32_t weights[BLOCK_M / 16][4];  // gradients of scores, or p
    const auto start_step_scores = [&](const RingPosition<NUM_STAGES>& position) {
        shared.q.wait_until_full(position);
        start_scores<T, HEAD_DIM, BLOCK_M>(
            scores, k, by_query(shared.q, position.stage)
        );
    };
    // From a step's scores to the sum, which is started only.
    const auto add_step = [&]<bool IS_OF_K>(int step) {
        const int stage = grad_position.stage;
        shared.grad.wait_until_full(grad_position);
        if constexpr (IS_OF_K) {
            start_scores<T, HEAD_DIM, BLOCK_M>(grad_p, v, by_query(shared.grad, stage));
        }
        const int row = tile.first_row + step * BLOCK_M;
        if (row < seeing_from || row + BLOCK_M > seeing_to) {
            hide_unseen<BLOCK_M>(scores, upper, lower, row + lane % 4 * 2);
        }
        const float* lse = shared.lse[stage] + lane % 4 * 2;
        #pragma unroll
        for (int i = 0; i < BLOCK_M / 2; ++i) {
            float& score = scores[i / 4][i / 2 % 2][i % 2];
            score = ptx::exp2(fmaf(score, scale_log2, -lse[i / 4 * 8 + i % 2]));
        }
        if constexpr (IS_OF_K) {
            ptx::wgmma_wait_group<0>();
            const float* delta = shared.delta[stage] + lane % 4 * 2;
        #pragma unroll
            for (int i = 0; i < BLOCK_M / 2; ++i) {
                scores[i / 4][i / 2 % 2][i % 2] *=
                    grad_p[i / 4][i / 2 % 2][i % 2] - delta[i / 4 * 8 + i % 2];
            }
        }
        round_to_operand<T, BLOCK_M>(weights, scores);
        start_values<T, HEAD_DIM, BLOCK_M>(
            sums, weights,
            IS_OF_K ? over_queries(shared.q, stage) : over_queries(shared.grad, stage)
        );
    };
    const auto release_step = [&] {
        shared.q.release(q_position, lane == 0);
        shared.grad.release(grad_position, lane == 0);
    };

    const auto sum_up = [&]<bool IS_OF_K>() {
        // -- compute: a step's sum together with the next step's scores
        ptx::mbarrier_wait(&shared.keys_full, 0);
        for (int i = 0; i < n_sharing && tile.n_steps > 0; ++i) {
            start_step_scores(q_position);
            ptx::wgmma_wait_group<0>();
            for (int step = 0; step < tile.n_steps - 1; ++step) {
                add_step.template operator()<IS_OF_K>(step);
                RingPosition<NUM_STAGES> next = q_position;
                next.advance();
                start_step_scores(next);
                ptx::wgmma_wait_group<0>();
                release_step();
            }
            add_step.template operator()<IS_OF_K>(tile.n_steps - 1);
            ptx::wgmma_wait_group<0>();
            release_step();
        }

        // -- store: where the keys and values were, which all products have read by now
        store_gradient<T, HEAD_DIM, BACKWARD_CONSUMERS * WARPGROUP_SIZE>(
            IS_OF_K ? grad_k_map : grad_v_map, sums, IS_OF_K ? scale : 1.0f,
            IS_OF_K ? shared.k[0] : shared.v[0], tile.key, tile.kv_head, tile.batch, 1
        );
        if (thread == 0) ptx::tma_store_wait_group_read<0>();
    };
    if (warpgroup == 0) {
        sum_up.template operator()<true>();
    } else {
        sum_up.template operator()<false>();
    }
#endif
}
