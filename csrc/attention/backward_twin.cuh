// The twin: all gradients at once. A block owns keys, and the gradients of its scores
// give a part of those of queries, too. That is five products instead of seven.
//
// Scores are computed transposed, keys by queries, so that what follows from them is in the
// registers from which it is multiplied again. Each warpgroup has 64 of the keys and goes at its
// own pace, half a step apart from the other: one computes exponentials while the tensor cores
// multiply for the other. Through shared memory both get the gradients of all scores, a step
// later, when both have written them. They multiply those by the keys, each for 64 queries and
// 64 columns, and this part leaves the registers for memory while the tensor cores go on. There
// blocks add parts up, in float32: in turns, as in backward_turns.cuh, or in any order.
#pragma once

#include "attention/backward_parts.cuh"
#include "attention/backward_turns.cuh"
#include "attention/products.cuh"
#include "attention/softmax.cuh"
#include "common/ptx/bulk_copy.cuh"
#include "common/ptx/reduction.cuh"

template <
    typename T, int HEAD_DIM, int BLOCK_M, int BLOCK_N, int NUM_STAGES,
    bool TAKES_TURNS>
__global__ void
__launch_bounds__(twin::BACKWARD_NUM_THREADS, 1) attention_backward_kernel(
    // (n_batches, n_heads, n_sums)
    twin::QuerySums<HEAD_DIM>* __restrict__ sums_ptr,
    // (n_batches, n_keys, n_kv_heads, head_dim)
    const __grid_constant__ TensorMap4D grad_k_map,
    const __grid_constant__ TensorMap4D grad_v_map,  // of grad_k's shape
    // (n_batches, n_queries, n_heads, head_dim)
    const __grid_constant__ TensorMap4D grad_map,
    const __grid_constant__ TensorMap4D q_map,  // of grad's shape
    const __grid_constant__ TensorMap4D k_map,  // of grad_k's shape
    const __grid_constant__ TensorMap4D v_map,  // of grad_k's shape
    int n_batches, int n_heads, int n_kv_heads, int n_queries, int n_keys,
    int heads_per_section, int n_from_last, float scale, int window_left,
    int window_right
) {
#if defined(TWIN_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using namespace twin;
    static_assert(BLOCK_N == BACKWARD_CONSUMERS * BOX_SIZE);
    using Shared = BackwardShared<HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES>;
    constexpr int ROW_BOXES = Shared::ROW_BOXES, COL_BOXES = Shared::COL_BOXES;
    static_assert(ROW_BOXES * COL_BOXES == BACKWARD_CONSUMERS);
    DYNAMIC_SHARED(shared_bytes, 1024);
    auto& shared = *reinterpret_cast<Shared*>(shared_bytes);

    // -- tile: a block owns BLOCK_N keys of a head
    const Window window{n_queries, n_keys, window_left, window_right};
    const KeyTile tile = key_tile_at<BLOCK_M, BLOCK_N>(
        blockIdx.x, n_batches, n_kv_heads, heads_per_section, n_from_last, window
    );
    const int n_sharing = n_heads / n_kv_heads;
    const int n_steps = n_sharing * tile.n_steps;
    const int n_sums = count_sums<BLOCK_M>(n_queries);
    sums_ptr += (int64_t{tile.batch} * n_heads + tile.kv_head * n_sharing) * n_sums;
    const auto sums_at = [&](const QueryStep& at) {
        return sums_ptr + int64_t{at.head} * n_sums + at.row / BOX_SIZE;
    };
    // Broadcast from one lane, so that the compiler knows it to be uniform in a warp.
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP_SIZE, 0);
    const int thread = threadIdx.x % WARPGROUP_SIZE;
    RingPosition<NUM_STAGES> position;
    QueryStep at = tile.template begin<BLOCK_M>();
    if (threadIdx.x == 0) shared.begin();
    __syncthreads();

    // -- load: by one thread
    if (warpgroup == BACKWARD_CONSUMERS) {
        ptx::setmaxnreg_dec<QUERIES_PRODUCER_REGISTERS>();
        if (TAKES_TURNS && thread == WARP_SIZE) {
            ask_for_turns<BLOCK_M, BLOCK_N>(
                shared.turn, sums_at, n_sharing, tile, window
            );
        }
        if (TAKES_TURNS && thread == 2 * WARP_SIZE) {
            pass_turns_on<BLOCK_M>(shared.turn, sums_at, n_sharing, tile);
        }
        if (thread != 0) return;
        load_own_rows(
            shared.k, shared.v, k_map, v_map, tile.key, tile.kv_head, tile.batch,
            &shared.own_full
        );
        #pragma unroll 1  // else registers are spilled, to an L1 that turns invalidate
        for (int step = 0; step < n_steps; ++step) {
            const int head = tile.kv_head * n_sharing + at.head;
            load_stage(shared.q, position, q_map, at.row, head, tile.batch);
            load_stage(shared.grad, position, grad_map, at.row, head, tile.batch);
            auto& statistics = shared.statistics[position.stage];
            uint64_t* full = &shared.statistics_full[position.stage];
            ptx::mbarrier_arrive_expect_bytes(full, sizeof(statistics));
            const auto* sums = sums_at(at);
            for (int j = 0; j < ROW_BOXES; ++j) {
                ptx::bulk_load(
                    &statistics[j], &sums[j].statistics, sizeof(statistics[j]), full
                );
            }
            position.advance();
            at.advance(n_sharing);
        }
        return;
    }

    ptx::setmaxnreg_inc<QUERIES_CONSUMER_REGISTERS>();
    const int lane = thread % WARP_SIZE;
    const int first_key = tile.key + warpgroup * BOX_SIZE;
    const int key = first_key + thread / WARP_SIZE * 16 + lane / 4;  // and 8 below
    // The queries that see all keys of the warpgroup need no mask. None sees a key behind the
    // last one: its score is 0, exp(0 - lse) may be infinite, and NaN times its row of zeros.
    const auto seeing = [&](int key) {
        return key < n_keys ? window.of_key(key) : Queries{0, 0};
    };
    const int seeing_from = seeing(first_key + BOX_SIZE - 1).first;
    const int seeing_to =
        min(seeing(first_key).end, seeing(first_key + BOX_SIZE - 1).end);
    const auto by_query = [](const auto& ring, int stage) {
        return ptx::wgmma_descriptor(ring.stages[stage], 0, 8 * ROW_BYTES);
    };
    const auto over_queries = [](const auto& ring, int stage) {
        return ptx::wgmma_descriptor(
            ring.stages[stage], sizeof(KeyBox<BLOCK_M>), 8 * ROW_BYTES
        );
    };
    const auto over_keys = [](const Box& first) {
        return ptx::wgmma_descriptor(&first, 0, 8 * ROW_BYTES);
    };
    const uint64_t k = ptx::wgmma_descriptor(shared.k[warpgroup], 0, 8 * ROW_BYTES);
    const uint64_t v = ptx::wgmma_descriptor(shared.v[warpgroup], 0, 8 * ROW_BYTES);
    // The warpgroup's queries and columns of a step's part.
    const int row_box = warpgroup % ROW_BOXES, col_box = warpgroup % COL_BOXES;
    const float scale_log2 = scale * LOG2_E;

    float grad_k[HEAD_DIM / 8][2][2]{}, grad_v[HEAD_DIM / 8][2][2]{};
    ptx::mbarrier_wait(&shared.own_full, 0);

    // -- compute: exponentials while the tensor cores multiply for the other warpgroup; the part
    // of a step in the next one
    RingPosition<NUM_STAGES> last_position;
    QuerySums<HEAD_DIM>* sums = nullptr;
    const auto start_last_part = [&](auto& part, int buffer) {
        const auto& grad_scores = shared.grad_scores[buffer];
        start_part<T, BLOCK_N>(
            part, over_keys(grad_scores[0][row_box]), sizeof(grad_scores[0]),
            over_keys(shared.k[0][col_box]), sizeof(shared.k[0])
        );
    };
    const auto add_part = [&](const auto& part, int step) {
        if (TAKES_TURNS) shared.turn.wait(step);
        #pragma unroll
        for (int i = 0; i < BOX_SIZE / 8; ++i) {
            const auto& four = part[i];
            ptx::add_in_memory(
                &sums->boxes[col_box][i][thread],
                {four[0][0], four[0][1], four[1][0], four[1][1]}
            );
        }
        if (TAKES_TURNS) shared.turn.end();
    };
    if (n_steps > 0) {
        // In the beginning as if a step before had ended, for which nobody waits.
        RingPosition<NUM_SCORE_STEPS> buffer, last_buffer{NUM_SCORE_STEPS - 1, 1};
        int step = 0;
        if (warpgroup == 1) ptx::mbarrier_wait(&shared.is_ahead, 0);
        do {
            float scores[BLOCK_M / 8][2][2], grad_p[BLOCK_M / 8][2][2];
            uint32_t p[BLOCK_M / 16][4], grad_scores[BLOCK_M / 16][4];
            const int stage = position.stage;
            shared.q.wait_until_full(position);
            start_scores<T, HEAD_DIM, BLOCK_M>(scores, k, by_query(shared.q, stage));
            shared.grad.wait_until_full(position);
            start_scores<T, HEAD_DIM, BLOCK_M>(grad_p, v, by_query(shared.grad, stage));
            ptx::mbarrier_wait(&shared.statistics_full[stage], position.parity);
            ptx::wgmma_wait_group<1>();
            if (step > 0) shared.q.release(last_position, lane == 0);
            subtract_lse<BLOCK_M>(scores, shared.statistics[stage], scale_log2);
            if (at.row < seeing_from || at.row + BLOCK_M > seeing_to) {
                hide_unseen<BLOCK_M>(
                    scores, seeing(key), seeing(key + 8), at.row + lane % 4 * 2
                );
            }
            #pragma unroll
            for (int i = 0; i < BLOCK_M / 2; ++i) {
                float& score = scores[i / 4][i / 2 % 2][i % 2];
                score = ptx::exp2(score);
            }
            round_to_operand<T, BLOCK_M>(p, scores);
            if (threadIdx.x == 0 && step == 0) ptx::mbarrier_arrive(&shared.is_ahead);
            start_values<T, HEAD_DIM, BLOCK_M>(
                grad_v, p, over_queries(shared.grad, stage)
            );
            ptx::wgmma_wait_group<1>();
            multiply_by_grad_p<BLOCK_M>(scores, grad_p, shared.statistics[stage]);
            round_to_operand<T, BLOCK_M>(grad_scores, scores);
            ptx::wgmma_wait_group<0>();  // p's is over by now: registers come free

            // When the other has written those of the last step, it has multiplied those
            // whose place these take.
            ptx::mbarrier_wait(
                &shared.grad_scores_full[last_buffer.stage], last_buffer.parity
            );
            auto& boxes = shared.grad_scores[buffer.stage][warpgroup];
            store_operand<BLOCK_M>(boxes, grad_scores, thread);
            ptx::fence_async_proxy();
            ptx::named_barrier_sync(2 + warpgroup, WARPGROUP_SIZE);
            if (thread == 0)
                ptx::mbarrier_arrive(&shared.grad_scores_full[buffer.stage]);
            const auto start_sum = [&] {
                start_values<T, HEAD_DIM, BLOCK_M>(
                    grad_k, grad_scores, over_queries(shared.q, stage)
                );
            };
            if (step > 0) {
                float part[BOX_SIZE / 8][2][2];
                start_last_part(part, last_buffer.stage);
                start_sum();
                ptx::wgmma_wait_group<1>();
                add_part(part, step - 1);
            } else {
                start_sum();
            }
            // The scores of 128 queries need the registers of their gradients.
            if constexpr (BLOCK_M > BOX_SIZE) ptx::wgmma_wait_group<0>();
            shared.grad.release(position, lane == 0);
            sums = sums_at(at) + row_box;
            at.advance(n_sharing);
            last_buffer = buffer;
            buffer.advance();
        } while (++step < n_steps);
        float part[BOX_SIZE / 8][2][2];
        ptx::mbarrier_wait(
            &shared.grad_scores_full[last_buffer.stage], last_buffer.parity
        );
        start_last_part(part, last_buffer.stage);
        ptx::wgmma_wait_group<0>();
        add_part(part, n_steps - 1);
    }

    // -- store: where the keys and values were, once all products have read them
    ptx::named_barrier_sync(1, BACKWARD_CONSUMERS * WARPGROUP_SIZE);
    const auto store = [&](const TensorMap4D& map, const auto& sums, float factor,
                           auto& boxes) {
        store_gradient<T, HEAD_DIM, WARPGROUP_SIZE>(
            map, sums, factor, boxes, first_key, tile.kv_head, tile.batch, 2 + warpgroup
        );
    };
    store(grad_k_map, grad_k, scale, shared.k[warpgroup]);
    store(grad_v_map, grad_v, 1.0f, shared.v[warpgroup]);
    if (thread == 0) ptx::tma_store_wait_group_read<0>();
#endif
}
