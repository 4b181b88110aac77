// The twin: warpgroups take turns, so that one computes softmax while another keeps the
// tensor cores busy, and one thread does nothing but load.
//
// A warpgroup has 64 queries. It starts the scores of one tile of keys together with the
// product of the previous tile's exponentials, which never leave its registers, and v; while
// that product runs, it works on the new scores. Tiles of keys come from right to left, so
// that those in which a query does not see all keys come first. A block takes one tile of
// queries after the other, and loads ahead into the next one. Packed sequences are left to the
// third rung: TMA has zeros only behind the end of a tensor, not behind that of a sequence.
#pragma once

#include "attention/products.cuh"
#include "attention/ring.cuh"
#include "attention/softmax.cuh"
#include "attention/store.cuh"
#include "common/launch.cuh"

template <typename T, int HEAD_DIM, int BLOCK_M, int BLOCK_N, int NUM_STAGES>
__global__ void __launch_bounds__(twin::NUM_THREADS<BLOCK_M>, 1) attention_kernel(
    // (n_batches, n_queries, n_heads, head_dim)
    const __grid_constant__ TensorMap4D out_map,
    float* __restrict__ lse_ptr,    // (n_batches, n_heads, n_queries)
    int* __restrict__ n_taken_ptr,  // tiles that were taken, 0 at first; or null
    const __grid_constant__ TensorMap4D q_map,  // of out's shape
    const __grid_constant__ TensorMap4D k_map,  // (n_batches, n_keys, n_kv_heads, ...)
    const __grid_constant__ TensorMap4D v_map,  // of k's shape
    int n_batches, int n_heads, int n_kv_heads, int n_queries, int n_keys,
    int heads_per_section, float scale, int window_left, int window_right
) {
#if defined(TWIN_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using namespace twin;
    using Shared = AttentionShared<HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES>;
    constexpr int NUM_WARPGROUPS = NUM_CONSUMERS<BLOCK_M>;
    static_assert(NUM_WARPGROUPS > 1);
    DYNAMIC_SHARED(shared_bytes, 1024);
    auto& shared = *reinterpret_cast<Shared*>(shared_bytes);

    // -- tile: the loading thread takes one after the other, by a count that all blocks share
    // where tiles differ in length, or else every gridDim.x-th one
    const int n_tiles = n_batches * n_heads * ((n_queries - 1) / BLOCK_M + 1);
    const Window window{n_queries, n_keys, window_left, window_right};
    // Broadcast from one lane, so that the compiler knows it to be uniform in a warp.
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP_SIZE, 0);
    const int thread = threadIdx.x % WARPGROUP_SIZE;
    if (threadIdx.x == 0) shared.begin();
    __syncthreads();

    // -- load: by one thread, ahead into the next tile
    if (warpgroup == NUM_WARPGROUPS) {
        ptx::setmaxnreg_dec<PRODUCER_REGISTERS<BLOCK_M>>();
        if (thread != 0) return;
        Producer<HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES> producer{shared};
        for (int index = blockIdx.x; index < n_tiles;) {
            const QueryTile tile = query_tile_at<BLOCK_M, BLOCK_N>(
                index, n_batches, n_heads, heads_per_section, window
            );
            const int kv_head = tile.head / (n_heads / n_kv_heads);
            producer.tell(tile);
            producer.load_tile(tile, kv_head, q_map, k_map, v_map);
            // Not before, so that a block with a long tile leaves the next one to others.
            index = gridDim.x + (n_taken_ptr ? atomicAdd(n_taken_ptr, 1) : index);
        }
        producer.tell({0, 0, 0, 0, -1});
        return;
    }

    ptx::setmaxnreg_inc<CONSUMER_REGISTERS<BLOCK_M>>();
    const int lane = thread % WARP_SIZE;
    // A turn is passed on along a circle of barriers; the first warpgroup has the first one.
    const auto pass_turn_to = [](int group) {
        const int barrier = 1 + NUM_WARPGROUPS + group % NUM_WARPGROUPS;
        ptx::named_barrier_arrive(barrier, 2 * WARPGROUP_SIZE);
    };
    const auto take_turn = [&] {
        const int barrier = 1 + NUM_WARPGROUPS + warpgroup;
        ptx::named_barrier_sync(barrier, 2 * WARPGROUP_SIZE);
    };
    if (warpgroup == NUM_WARPGROUPS - 1) pass_turn_to(0);
    const uint64_t q = ptx::wgmma_descriptor(shared.q(warpgroup), 0, 8 * ROW_BYTES);
    const uint64_t k_stages = ptx::wgmma_descriptor(shared.k.stages, 0, 8 * ROW_BYTES);
    const uint64_t v_stages =
        ptx::wgmma_descriptor(shared.v.stages, sizeof(KeyBox<BLOCK_N>), 8 * ROW_BYTES);
    const float scale_log2 = scale * LOG2_E;
    RingPosition<NUM_STAGES> k_position, v_position;
    RingPosition<1> q_position, tile_position;

    const auto hear_of_tile = [&] {
        ptx::mbarrier_wait(&shared.tile_full, tile_position.parity);
        tile_position.advance();
        const QueryTile tile = shared.tile.uniform();
        ptx::named_barrier_sync(1 + warpgroup, WARPGROUP_SIZE);
        if (thread == 0) ptx::mbarrier_arrive(&shared.tile_empty);
        return tile;
    };
    for (QueryTile tile = hear_of_tile(); tile.n_steps >= 0; tile = hear_of_tile()) {
        const int first_row = tile.row + warpgroup * BOX_SIZE;
        const int row = first_row + thread / WARP_SIZE * 16 + lane / 4;  // and 8 below
        const Keys upper = window.of_query(row), lower = window.of_query(row + 8);
        const auto [first_step, end_step] =
            steps_of_rows<BLOCK_N>(tile, first_row, window);
        // The keys that all queries of the warpgroup see need no mask.
        const int seen_from = window.of_query(first_row + BOX_SIZE - 1).first;
        const int seen_to = window.of_query(first_row).end;

        float scores[BLOCK_N / 8][2][2];
        uint32_t p[BLOCK_N / 16][4];
        float out[HEAD_DIM / 8][2][2]{};
        RunningSoftmax softmax;
        float rescale[2];
        const auto start_step = [&] {
            shared.k.wait_until_full(k_position);
            take_turn();
            start_scores<T, HEAD_DIM, BLOCK_N>(
                scores, q,
                ptx::wgmma_advance(
                    k_stages, k_position.stage * int{sizeof(shared.k.stages[0])}
                )
            );
        };
        const auto start_last_values = [&] {
            shared.v.wait_until_full(v_position);
            start_values<T, HEAD_DIM, BLOCK_N>(
                out, p,
                ptx::wgmma_advance(
                    v_stages, v_position.stage * int{sizeof(shared.v.stages[0])}
                )
            );
        };
        const auto add_scores = [&](int step) {
            shared.k.release(k_position, thread == 0);
            const int key = tile.last_key - step * BLOCK_N;
            if (key < seen_from || key + BLOCK_N > seen_to) {
                hide_unseen<BLOCK_N>(scores, upper, lower, key + lane % 4 * 2);
            }
            return softmax.add<BLOCK_N>(scores, scale_log2, rescale);
        };
        // Of keys that others of the block's queries see, and none of the warpgroup's.
        const auto skip_steps = [&](int n_steps) {
            for (int step = 0; step < n_steps; ++step) {
                take_turn();
                pass_turn_to(warpgroup + 1);
                shared.k.wait_until_full(k_position);
                shared.k.release(k_position, thread == 0);
                shared.v.wait_until_full(v_position);
                shared.v.release(v_position, thread == 0);
            }
        };

        // -- compute: a step's scores together with the last step's values
        ptx::mbarrier_wait(&shared.q_full, q_position.parity);
        q_position.advance();
        skip_steps(first_step);
        if (first_step < end_step) {
            start_step();
            pass_turn_to(warpgroup + 1);
            ptx::wgmma_wait_group<0>();
            add_scores(first_step);
            round_to_operand<T, BLOCK_N>(p, scores);
        }
        for (int step = first_step + 1; step < end_step; ++step) {
            start_step();
            start_last_values();
            pass_turn_to(warpgroup + 1);
            ptx::wgmma_wait_group<1>();
            const bool rescales = add_scores(step);
            ptx::wgmma_wait_group<0>();
            shared.v.release(v_position, thread == 0);
            round_to_operand<T, BLOCK_N>(p, scores);
            if (rescales) {
                #pragma unroll
                for (int i = 0; i < HEAD_DIM / 2; ++i) {
                    out[i / 4][i / 2 % 2][i % 2] *= rescale[i / 2 % 2];
                }
            }
        }
        if (!Shared::OUT_IS_Q && thread == 0) ptx::mbarrier_arrive(&shared.q_empty);
        if (first_step < end_step) {
            start_last_values();
            ptx::wgmma_wait_group<0>();
            shared.v.release(v_position, thread == 0);
        }
        skip_steps(tile.n_steps - end_step);

        // -- store: through shared memory, which the last tile's rows have left by now
        float inverse[2];
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float row_sum = softmax.sum_of_row(i);
            inverse[i] = row_sum == 0.0f ? 0.0f : 1.0f / row_sum;
            const int query = row + i * 8;
            if (lane % 4 == 0 && query < n_queries) {
                const int64_t head = int64_t{tile.batch} * n_heads + tile.head;
                lse_ptr[head * n_queries + query] =
                    softmax.row_max[i] * scale + logf(row_sum);
            }
        }
        if (thread == 0) ptx::tma_store_wait_group_read<0>();
        ptx::named_barrier_sync(1 + warpgroup, WARPGROUP_SIZE);
        store_rows<T, HEAD_DIM>(shared.out(warpgroup), out, inverse, thread);
        ptx::fence_async_proxy();
        ptx::named_barrier_sync(1 + warpgroup, WARPGROUP_SIZE);
        if (thread == 0) {
            for (int i = 0; i < BOXES_OF_ROW<HEAD_DIM>; ++i) {
                ptx::tma_store(
                    &out_map.map, i * BOX_SIZE, first_row, tile.head, tile.batch,
                    &shared.out(warpgroup)[i]
                );
            }
            ptx::tma_store_commit_group();
            if (Shared::OUT_IS_Q) {
                ptx::tma_store_wait_group_read<0>();
                ptx::mbarrier_arrive(&shared.q_empty);
            }
        }
    }
    if (thread == 0) ptx::tma_store_wait_group_read<0>();
#endif
}
