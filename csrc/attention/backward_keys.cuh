// The twin's gradients of keys and values: scores are computed transposed, keys by queries, so
// that what follows from them is in the registers from which it is multiplied again.
//
// A block owns keys, and takes the queries that see them, of all heads that share them. Each
// warpgroup sums up 64 rows of both gradients in registers, or of one if they are long. While
// one computes exponentials the tensor cores multiply for the other, and for itself: gradients
// by values then, and afterwards the last sum together with the next step's scores. No other
// block adds to the sums: the same call gives the same bits.
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
    // Sums of more than 128 columns fill the registers: both warpgroups then have the same 64
    // keys, and one of the two gradients.
    constexpr bool IS_SPLIT = HEAD_DIM > 128;
    static_assert(BLOCK_N == (IS_SPLIT ? 1 : BACKWARD_CONSUMERS) * BOX_SIZE);
    using Shared = BackwardKeysShared<HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES>;
    DYNAMIC_SHARED(shared_bytes, 1024);
    auto& shared = *reinterpret_cast<Shared*>(shared_bytes);

    // -- tile: a block owns BLOCK_N keys of a head
    const Window window{n_queries, n_keys, window_left, window_right};
    const KeyTile tile = key_tile_at<BLOCK_M, BLOCK_N>(
        blockIdx.x, n_batches, n_kv_heads, heads_per_section, window
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
    const int box = IS_SPLIT ? 0 : warpgroup;  // of the keys
    const int first_key = tile.key + box * BOX_SIZE;
    const int key = first_key + thread / WARP_SIZE * 16 + lane / 4;  // and 8 below
    const Queries upper = window.of_key(key), lower = window.of_key(key + 8);
    const auto [first_step, end_step] = steps_of_keys<BLOCK_M>(tile, first_key, window);
    // The queries that see all keys of the warpgroup need no mask.
    const int seeing_from = window.of_key(first_key + BOX_SIZE - 1).first;
    const int seeing_to = window.of_key(first_key).end;
    const uint64_t k = ptx::wgmma_descriptor(shared.k[box], 0, 8 * ROW_BYTES);
    const uint64_t v = ptx::wgmma_descriptor(shared.v[box], 0, 8 * ROW_BYTES);
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

    float grad_k[HEAD_DIM / 8][2][2]{}, grad_v[HEAD_DIM / 8][2][2]{};
    float scores[BLOCK_M / 8][2][2], grad_p[BLOCK_M / 8][2][2];
    uint32_t p[BLOCK_M / 16][4], grad_scores[BLOCK_M / 16][4];
    const auto start_step_scores = [&](const RingPosition<NUM_STAGES>& position) {
        shared.q.wait_until_full(position);
        start_scores<T, HEAD_DIM, BLOCK_M>(
            scores, k, by_query(shared.q, position.stage)
        );
    };
    // From a step's scores to the sums, the last of which is started only.
    const auto add_step = [&]<bool SUMS_K, bool SUMS_V>(int step) {
        const int stage = grad_position.stage;
        shared.grad.wait_until_full(grad_position);
        if constexpr (SUMS_K) {
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
        if constexpr (SUMS_V) {
            round_to_operand<T, BLOCK_M>(p, scores);
            start_values<T, HEAD_DIM, BLOCK_M>(
                grad_v, p, over_queries(shared.grad, stage)
            );
        }
        if constexpr (SUMS_K) {
            ptx::wgmma_wait_group<0>();
            const float* delta = shared.delta[stage] + lane % 4 * 2;
            #pragma unroll
            for (int i = 0; i < BLOCK_M / 2; ++i) {
                scores[i / 4][i / 2 % 2][i % 2] *=
                    grad_p[i / 4][i / 2 % 2][i % 2] - delta[i / 4 * 8 + i % 2];
            }
            round_to_operand<T, BLOCK_M>(grad_scores, scores);
            start_values<T, HEAD_DIM, BLOCK_M>(
                grad_k, grad_scores, over_queries(shared.q, stage)
            );
        }
    };
    const auto release_step = [&] {
        shared.q.release(q_position, lane == 0);
        shared.grad.release(grad_position, lane == 0);
    };
    // Of queries that see keys of the other warpgroup, and none of this one.
    const auto skip_steps = [&](int n_steps) {
        for (int step = 0; step < n_steps; ++step) {
            shared.q.wait_until_full(q_position);
            shared.grad.wait_until_full(grad_position);
            release_step();
        }
    };

    const auto sum_up = [&]<bool SUMS_K, bool SUMS_V>() {
        // -- compute: a step's last sum together with the next step's scores
        ptx::mbarrier_wait(&shared.keys_full, 0);
        for (int i = 0; i < n_sharing; ++i) {
            skip_steps(first_step);
            if (first_step < end_step) {
                start_step_scores(q_position);
                ptx::wgmma_wait_group<0>();
                for (int step = first_step; step < end_step - 1; ++step) {
                    add_step.template operator()<SUMS_K, SUMS_V>(step);
                    RingPosition<NUM_STAGES> next = q_position;
                    next.advance();
                    start_step_scores(next);
                    ptx::wgmma_wait_group<0>();
                    release_step();
                }
                add_step.template operator()<SUMS_K, SUMS_V>(end_step - 1);
                ptx::wgmma_wait_group<0>();
                release_step();
            }
            skip_steps(tile.n_steps - end_step);
        }

        // -- store: where the keys and values were, which all products have read by now
        constexpr int NUM_THREADS =
            (IS_SPLIT ? BACKWARD_CONSUMERS : 1) * WARPGROUP_SIZE;
        const auto store = [&](const TensorMap4D& map, const auto& sums, float factor,
                               auto& boxes) {
            store_gradient<T, HEAD_DIM, NUM_THREADS>(
                map, sums, factor, boxes, first_key, tile.kv_head, tile.batch, 1 + box
            );
        };
        if constexpr (SUMS_K) store(grad_k_map, grad_k, scale, shared.k[box]);
        if constexpr (SUMS_V) store(grad_v_map, grad_v, 1.0f, shared.v[box]);
        if (thread == 0) ptx::tma_store_wait_group_read<0>();
    };
    if constexpr (!IS_SPLIT) {
        sum_up.template operator()<true, true>();
    } else if (warpgroup == 0) {
        sum_up.template operator()<true, false>();
    } else {
        sum_up.template operator()<false, true>();
    }
#endif
}
