// The twin: warpgroups multiply from shared memory while two threads do nothing but load.
//
// They have the tensor memory accelerator (TMA) fill a ring of stages, ahead of the
// multiplications and into the next tile, while the consumers are still at the epilogue of
// this one. Each n_clusters-th tile is a cluster's, after its parts of those that are shared.
#pragma once

#include "common/epilogue.cuh"
#include "common/launch.cuh"
#include "common/ptx/griddepcontrol.cuh"
#include "common/vec.cuh"
#include "matmul/cluster.cuh"
#include "matmul/stage.cuh"
#include "matmul/store.cuh"
#include "matmul/tiles.cuh"

template <
    typename T, int BLOCK_M, int BLOCK_N, int NUM_STAGES, ptx::Major A_MAJOR,
    ptx::Major B_MAJOR>
__global__ void __launch_bounds__(twin::NUM_THREADS<BLOCK_M>, 1) matmul_kernel(
    const __grid_constant__ TensorMap
        out_map,                              // (n_batches, M, N), if rows are aligned
    const __grid_constant__ TensorMap a_map,  // (n_batches or 1, M, K), or transposed
    const __grid_constant__ TensorMap b_map,  // (n_batches or 1, K, N), or transposed
    const T* bias_ptr,                        // (N), or null
    float* __restrict__ parts_ptr,            // (2 * n_clusters, a large tile), or null
    T* __restrict__ out_ptr,  // (n_batches, M, N), or null where out_map serves
    int n_batches, int M, int N, int K, bool a_is_shared, bool b_is_shared,
    int activation, int n_streamed, int cluster_rows, int cluster_cols
) {
#if defined(TWIN_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using namespace twin;
    DYNAMIC_SHARED(shared_bytes, 1024);
    auto& shared =
        *reinterpret_cast<Shared<BLOCK_M, BLOCK_N, NUM_STAGES>*>(shared_bytes);

    // -- tile: of a cluster: parts of those that are shared, then every n_clusters-th one
    const Cluster<BLOCK_M, BLOCK_N> cluster(cluster_rows, cluster_cols, M, N);
    const int n_tiles = n_batches * cluster.n_tile_rows * cluster.n_tile_cols;
    const int index = cluster.index();
    const Parts parts{n_streamed, (K - 1) / BLOCK_K + 1, cluster.count()};
    // Broadcast, so that the compiler knows it to be uniform in a warp and computes it once.
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP_SIZE, 0);
    const int thread = threadIdx.x % WARPGROUP_SIZE;
    RingPosition<NUM_STAGES> ring;
    const Copies a_copies = cluster.copies_of_a(A_MAJOR, M);
    const Copies b_copies = cluster.copies_of_b(B_MAJOR, N);
    const int stage_bytes = (a_copies.stage_rows + b_copies.stage_rows) * ROW_BYTES;
    clear_rows(shared.a, a_copies.stage_rows);
    clear_rows(shared.b, b_copies.stage_rows);
    if (threadIdx.x == 0)
        init_barriers(shared, NUM_CONSUMERS<BLOCK_M> * cluster.size());
    cluster.sync();
    ptx::griddepcontrol_wait();

    // -- load: by two threads, each stage as soon as all consumers have used what was there
    if (warpgroup == NUM_CONSUMERS<BLOCK_M>) {
        ptx::setmaxnreg_dec<NUM_CONSUMERS<BLOCK_M> == 2 ? 24 : 56>();  // what is left
        if (thread != 0 && thread != WARP_SIZE) return;
        const bool loads_a = thread == 0;
        for (Part part = parts.first(index); part.tile < n_tiles;
             part = parts.next(index, part)) {
            const TileOrigin tile = cluster.origin_of(part.tile);
            const int outer = loads_a ? tile.row : tile.col;
            const int batch = (loads_a ? a_is_shared : b_is_shared) ? 0 : tile.batch;
            for (int step = 0; step < part.n_steps; ++step) {
                const int k = (part.first_step + step) * BLOCK_K, stage = ring.stage;
                uint64_t* full = &shared.full[stage];
                ptx::mbarrier_wait(&shared.empty[stage], ring.parity ^ 1);
                if (loads_a) {
                    ptx::mbarrier_arrive_expect_bytes(full, stage_bytes);
                    load_stage<A_MAJOR>(
                        shared.a[stage], a_map, outer, k, batch, full, a_copies
                    );
                } else {
                    load_stage<B_MAJOR>(
                        shared.b[stage], b_map, outer, k, batch, full, b_copies
                    );
                }
                ring.advance();
            }
        }
        return;
    }

    ptx::setmaxnreg_inc<240>();
    const bool is_plain =
        bias_ptr == nullptr && Activation{activation} == Activation::none;
    const float bias_scale = argument_scale<T>(Activation{activation});
    int turn_parity = 0;
    const uint64_t a_stages =
        ptx::wgmma_descriptor(&shared.a[0][warpgroup], sizeof(Box), 8 * ROW_BYTES);
    const uint64_t b_stages =
        ptx::wgmma_descriptor(&shared.b[0], sizeof(Box), 8 * ROW_BYTES);

    // -- finished: the results of the previous tile, which are stored box by box while this
    // tile is multiplied
    float sums[BLOCK_N / 8][2][2];
    uint32_t finished[BLOCK_N / 8][2];
    TileOrigin finished_tile{};
    bool has_finished = false;
    int n_stored = 0;  // boxes, which go through two places in turn
    const auto store_box = [&](int box) {
        unsigned char* out = shared.out[warpgroup][n_stored++ % 2].bytes;
        if (thread == 0) ptx::tma_store_wait_group_read<1>();
        ptx::named_barrier_sync(1 + warpgroup, WARPGROUP_SIZE);
        write_box(out, finished, box * BOX_SIZE / 8, thread);
        ptx::fence_async_proxy();
        ptx::named_barrier_sync(1 + warpgroup, WARPGROUP_SIZE);
        const TileOrigin origin{
            finished_tile.batch, finished_tile.row + warpgroup * BOX_SIZE,
            finished_tile.col + box * BOX_SIZE
        };
        if (out_ptr != nullptr) {
            store_elements(out_ptr, out, origin, M, N, thread);
        } else if (thread == 0) {
            ptx::tma_store(&out_map.map, origin.col, origin.row, origin.batch, out);
            ptx::tma_store_commit_group();
        }
    };

    for (Part part = parts.first(index); part.tile < n_tiles;
         part = parts.next(index, part)) {
        const int n_steps = part.n_steps;
        const bool takes_turns = NUM_CONSUMERS<BLOCK_M> == 2 && n_steps > NUM_STAGES;

        // -- compute: the next stage is handed in while one is multiplied
        int in_use = -1;  // the stage that is being multiplied
        const auto multiply = [&](int step) {
            // Before its last steps the second warpgroup waits until the first one is nearly
            // done: from then on one is at its epilogue while the other multiplies, and the
            // tensor cores keep working. All stages are the first one's meanwhile.
            if (takes_turns && warpgroup == 1 && step == n_steps - NUM_STAGES) {
                ptx::wgmma_wait_group<0>();
                cluster.release(&shared.empty[in_use], thread);
                in_use = -1;
                ptx::mbarrier_wait(&shared.turn, turn_parity);
                turn_parity ^= 1;
            }
            ptx::mbarrier_wait(&shared.full[ring.stage], ring.parity);
            const uint64_t a =
                ptx::wgmma_advance(a_stages, ring.stage * int{sizeof(shared.a[0])});
            const uint64_t b =
                ptx::wgmma_advance(b_stages, ring.stage * int{sizeof(shared.b[0])});
            ptx::wgmma_fence();
            #pragma unroll
            for (int k = 0; k < BLOCK_K; k += 16) {
                // 16 elements further along a row, or 16 rows
                constexpr int A_STEP = A_MAJOR == ptx::Major::K ? sizeof(T) : ROW_BYTES;
                constexpr int B_STEP = B_MAJOR == ptx::Major::K ? sizeof(T) : ROW_BYTES;
                ptx::wgmma_m64k16<T, A_MAJOR, B_MAJOR, BLOCK_N>(
                    reinterpret_cast<float (&)[BLOCK_N / 2]>(sums),
                    ptx::wgmma_advance(a, k * A_STEP),
                    ptx::wgmma_advance(b, k * B_STEP), step > 0 || k > 0
                );
                if (k % 32 != 0) ptx::wgmma_commit_group();  // a half of the step
            }
            if (in_use >= 0) {
                ptx::wgmma_wait_group<2>();
                cluster.release(&shared.empty[in_use], thread);
            }
            in_use = ring.stage;
            ring.advance();
        };
        int step = 0;
        while (step < min(NUM_STAGES, n_steps)) multiply(step++);

        // No multiplication waits for the tile's place, whose divisions take longer than a
        // step, or for its bias. A lane has no registers yet for all it needs of that: each
        // thread loads 2, half a tile apart, so that a warp's loads are of neighbours.
        const TileOrigin tile = cluster.origin_of(part.tile);
        T bias[2]{};
        const auto bias_col = [&](int i) { return i * (BLOCK_N / 2) + thread; };
        #pragma unroll
        for (int i = 0; i < 2 && bias_ptr != nullptr && thread < BLOCK_N / 2; ++i) {
            const int col = tile.col + bias_col(i);
            if (col < N) bias[i] = bias_ptr[col];
        }

        // Time to store: the other warpgroup, if there is one, multiplies as well by now. A
        // box takes longer than one step, less than two.
        #pragma unroll
        for (int box = 0; box < BLOCK_N / BOX_SIZE; ++box) {
            for (int i = 0; i < 2 && step < n_steps; ++i) multiply(step++);
            if (has_finished) store_box(box);
        }
        if (!is_plain) {
            // Every thread has passed store_box's barriers since it read the previous bias.
            auto* const scaled_bias =
                reinterpret_cast<float*>(shared.scaled_bias[warpgroup]);
            for (int i = 0; i < 2 && thread < BLOCK_N / 2; ++i) {
                scaled_bias[bias_col(i)] = bias_scale * to_float(bias[i]);
            }
            ptx::named_barrier_sync(1 + warpgroup, WARPGROUP_SIZE);
        }
        while (step < n_steps) multiply(step++);
        if (takes_turns && warpgroup == 0) {
            // Not earlier, or the two would share the tensor cores in these last steps.
            ptx::wgmma_wait_group<1>();
            if (thread == 0) ptx::mbarrier_arrive(&shared.turn);
        }

        // -- parts: their sums, which matmul_sum_kernel adds
        if (n_steps < parts.n_steps) {
            ptx::wgmma_wait_group<0>();
            cluster.release(&shared.empty[in_use], thread);
            in_use = -1;
            const int64_t place = parts.place_of(index, part.tile);
            float* const rows = cluster.rows_of(parts_ptr, place, warpgroup * BOX_SIZE);
            store_part(rows, sums, cluster.part_cols(), thread);
            has_finished = false;
            for (auto& pair : finished) pair[0] = pair[1] = 0;  // or they are kept
            continue;
        }

        // -- epilogue: all sums at once; the activation's branch precedes the last wait
        const auto finish = [&](auto of_sum_and_bias) {
            ptx::wgmma_wait_group<0>();
            if (in_use >= 0) cluster.release(&shared.empty[in_use], thread);
            #pragma unroll
            for (int i = 0; i < BLOCK_N / 4; ++i) {
                const auto [left, right] = sums[i / 2][i % 2];
                const float2 bias =
                    shared.scaled_bias[warpgroup][i / 2 * 4 + thread % 4];
                const Vec<float, 2> out{
                    of_sum_and_bias(left, bias.x), of_sum_and_bias(right, bias.y)
                };
                finished[i / 2][i % 2] =
                    __builtin_bit_cast(uint32_t, from_float<T>(out));
            }
        };
        if (is_plain) {
            finish([](float sum, float) { return sum; });
        } else {
            dispatch_activation(Activation{activation}, [&]<Activation ACTIVATION>() {
                finish(epilogue<ACTIVATION, T>);
            });
        }
        finished_tile = tile;
        has_finished = true;
    }

    // -- store: the last tile's results, box by box through shared memory
    ptx::griddepcontrol_launch_dependents();
    #pragma unroll
    for (int box = 0; box < BLOCK_N / BOX_SIZE && has_finished; ++box) store_box(box);
    if (thread == 0) ptx::tma_store_wait_group_read<0>();
    if (cluster.size() > 1) ptx::cluster_sync();  // others may still send to this block
#endif
}
