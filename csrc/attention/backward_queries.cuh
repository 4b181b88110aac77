// The twin's gradients of queries where rows are long: as in the forward a block owns queries,
// and keys and values come by rings.
//
// A warpgroup has 64 queries, and sums up their gradients in registers. The gradients of a
// tile of scores never leave them, and are multiplied by the keys together with the next
// tile's scores. Three products of the seven are computed here, two of them once more: that
// saves sums over several blocks in memory, and the same call gives the same bits.
#pragma once

#include "attention/backward_rings.cuh"
#include "attention/products.cuh"
#include "attention/softmax.cuh"

template <
    typename T, int HEAD_DIM, int BLOCK_M, int BLOCK_N, int K_STAGES, int V_STAGES>
__global__ void
__launch_bounds__(twin::BACKWARD_NUM_THREADS, 1) attention_backward_queries_kernel(
    // (n_batches, n_queries, n_heads, head_dim)
    const __grid_constant__ TensorMap4D grad_q_map,
    const __grid_constant__ TensorMap4D grad_map,  // of grad_q's shape
    const __grid_constant__ TensorMap4D q_map,     // of grad_q's shape
    const __grid_constant__ TensorMap4D k_map,  // (n_batches, n_keys, n_kv_heads, ...)
    const __grid_constant__ TensorMap4D v_map,  // of k's shape
    const float* __restrict__ lse_ptr,          // (n_batches, n_heads, n_queries)
    const float* __restrict__ delta_ptr,        // (n_batches, n_heads, n_queries)
    int n_batches, int n_heads, int n_kv_heads, int n_queries, int n_keys,
    int heads_per_section, float scale, int window_left, int window_right
) {
#if defined(TWIN_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using namespace twin;
    using Shared =
        BackwardQueriesShared<HEAD_DIM, BLOCK_M, BLOCK_N, K_STAGES, V_STAGES>;
    DYNAMIC_SHARED(shared_bytes, 1024);
    auto& shared = *reinterpret_cast<Shared*>(shared_bytes);

    // -- tile: a block owns BLOCK_M queries of a head
    const Window window{n_queries, n_keys, window_left, window_right};
    const QueryTile tile_of_thread = query_tile_at<BLOCK_M, BLOCK_N>(
        blockIdx.x, n_batches, n_heads, heads_per_section, window
    );
    const QueryTile tile = tile_of_thread.uniform();
    // Broadcast from one lane, so that the compiler knows it to be uniform in a warp.
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP_SIZE, 0);
    const int thread = threadIdx.x % WARPGROUP_SIZE;
    if (threadIdx.x == 0) shared.begin();
    __syncthreads();

    // -- load: by one thread
    if (warpgroup == BACKWARD_CONSUMERS) {
        ptx::setmaxnreg_dec<QUERIES_PRODUCER_REGISTERS>();
        if (thread != 0) return;
        load_own_rows(
            shared.q, shared.grad, q_map, grad_map, tile.row, tile.head, tile.batch,
            &shared.queries_full
        );
        const int kv_head = tile.head / (n_heads / n_kv_heads);
        RingPosition<K_STAGES> k_position;
        RingPosition<V_STAGES> v_position;
        for (int step = 0; step < tile.n_steps; ++step) {
            const int key = tile.last_key - step * BLOCK_N;
            load_stage(shared.k, k_position, k_map, key, kv_head, tile.batch);
            load_stage(shared.v, v_position, v_map, key, kv_head, tile.batch);
            k_position.advance();
            v_position.advance();
        }
        return;
    }

    ptx::setmaxnreg_inc<QUERIES_CONSUMER_REGISTERS>();
    const int lane = thread % WARP_SIZE;
    const int first_row = tile.row + warpgroup * BOX_SIZE;
    const int row = first_row + thread / WARP_SIZE * 16 + lane / 4;  // and 8 below
    const auto [first_step, end_step] = steps_of_rows<BLOCK_N>(tile, first_row, window);
    // The keys that all queries of the warpgroup see need no mask.
    const int seen_from = window.of_query(first_row + BOX_SIZE - 1).first;
    const int seen_to = window.of_query(first_row).end;
    float lse[2], delta[2];
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int64_t head = int64_t{tile.batch} * n_heads + tile.head;
        const int64_t index = head * n_queries + row + i * 8;
        const bool is_row = row + i * 8 < n_queries;
        lse[i] = lse_to_log2(is_row ? lse_ptr[index] : -INFINITY);
        delta[i] = is_row ? delta_ptr[index] : 0.0f;
    }
    const uint64_t q = ptx::wgmma_descriptor(shared.q[warpgroup], 0, 8 * ROW_BYTES);
    const uint64_t grad =
        ptx::wgmma_descriptor(shared.grad[warpgroup], 0, 8 * ROW_BYTES);
    // A tile of keys or values as the right matrix of a product whose result has a column for
    // each key, or of one that sums over keys.
    const auto by_key = [](const auto& ring, int stage) {
        return ptx::wgmma_descriptor(ring.stages[stage], 0, 8 * ROW_BYTES);
    };
    const auto over_keys = [](const auto& ring, int stage) {
        return ptx::wgmma_descriptor(
            ring.stages[stage], sizeof(KeyBox<BLOCK_N>), 8 * ROW_BYTES
        );
    };
    const float scale_log2 = scale * LOG2_E;
    RingPosition<K_STAGES> k_position;
    RingPosition<V_STAGES> v_position;

    float grad_q[HEAD_DIM / 8][2][2]{};
    float scores[BLOCK_N / 8][2][2], grad_p[BLOCK_N / 8][2][2];
    uint32_t grad_scores[BLOCK_N / 16][4];
    const auto start_step_scores = [&](const RingPosition<K_STAGES>& position) {
        shared.k.wait_until_full(position);
        start_scores<T, HEAD_DIM, BLOCK_N>(scores, q, by_key(shared.k, position.stage));
    };
    // From a step's scores to the sum, which is started only.
    const auto add_step = [&](int step) {
        shared.v.wait_until_full(v_position);
        start_scores<T, HEAD_DIM, BLOCK_N>(
            grad_p, grad, by_key(shared.v, v_position.stage)
        );
        const int key = tile.last_key - step * BLOCK_N;
        if (key < seen_from || key + BLOCK_N > seen_to) {
            const Keys upper = window.of_query(row), lower = window.of_query(row + 8);
            hide_unseen<BLOCK_N>(scores, upper, lower, key + lane % 4 * 2);
        }
        #pragma unroll
        for (int i = 0; i < BLOCK_N / 2; ++i) {
            float& score = scores[i / 4][i / 2 % 2][i % 2];
            score = ptx::exp2(fmaf(score, scale_log2, -lse[i / 2 % 2]));
        }
        ptx::wgmma_wait_group<0>();
        shared.v.release(v_position, thread == 0);
        #pragma unroll
        for (int i = 0; i < BLOCK_N / 2; ++i) {
            scores[i / 4][i / 2 % 2][i % 2] *=
                grad_p[i / 4][i / 2 % 2][i % 2] - delta[i / 2 % 2];
        }
        round_to_operand<T, BLOCK_N>(grad_scores, scores);
        start_values<T, HEAD_DIM, BLOCK_N>(
            grad_q, grad_scores, over_keys(shared.k, k_position.stage)
        );
    };
    // Of keys that others of the block's queries see, and none of the warpgroup's.
    const auto skip_steps = [&](int n_steps) {
        for (int step = 0; step < n_steps; ++step) {
            shared.k.wait_until_full(k_position);
            shared.k.release(k_position, thread == 0);
            shared.v.wait_until_full(v_position);
            shared.v.release(v_position, thread == 0);
        }
    };

    // -- compute: a step's sum together with the next step's scores
    ptx::mbarrier_wait(&shared.queries_full, 0);
    skip_steps(first_step);
    if (first_step < end_step) {
        start_step_scores(k_position);
        ptx::wgmma_wait_group<0>();
        for (int step = first_step; step < end_step - 1; ++step) {
            add_step(step);
            RingPosition<K_STAGES> next = k_position;
            next.advance();
            start_step_scores(next);
            ptx::wgmma_wait_group<0>();
            shared.k.release(k_position, thread == 0);
        }
        add_step(end_step - 1);
        ptx::wgmma_wait_group<0>();
        shared.k.release(k_position, thread == 0);
    }
    skip_steps(tile.n_steps - end_step);

    // -- store: where the queries were, which all products have read by now
    store_gradient<T, HEAD_DIM, WARPGROUP_SIZE>(
        grad_q_map, grad_q, scale, shared.q[warpgroup], first_row, tile.head,
        tile.batch, 1 + warpgroup
    );
    if (thread == 0) ptx::tma_store_wait_group_read<0>();
#endif
}
