// The twin for float32 on tensor cores: one tf32 product, or three ("tf32x3"), whose sums are
// about as exact as those of float32.
//
// The tensor cores take tf32 from shared memory only where it is contiguous along k. So one
// operand, the left one, comes to them through registers, which load it in any order. Where
// that is b, the kernel computes the transpose of out.
//
// tf32x3: a number is the sum of a large and a small tf32 number; of their four products the
// smallest is left out, so that a single product has some 22 bits. The left operand is split in registers, the right one by the launch
// that copied it, to two planes.
#pragma once

#include "common/epilogue.cuh"
#include "common/launch.cuh"
#include "common/ptx/griddepcontrol.cuh"
#include "common/ptx/wgmma_tf32.cuh"
#include "matmul/tf32_parts.cuh"

template <
    int BLOCK_M, int BLOCK_N, int NUM_STAGES, int NUM_PLANES, ptx::Major LEFT_MAJOR>
__global__ void __launch_bounds__(twin::NUM_THREADS<BLOCK_M>, 1) matmul_tf32_kernel(
    const __grid_constant__ TensorMap
        out_map,  // (n_batches, M, N), if rows are aligned
    const __grid_constant__ TensorMap left_map,  // of a, or of b if this is on the left
    const __grid_constant__ TensorMap right_map,  // of the other, all planes in turn
    const float* bias_ptr,                        // (N), or null
    float* __restrict__ parts_ptr,  // (2 * gridDim.x, a tile of out), or null
    float* __restrict__ out_ptr,    // (n_batches, M, N), or null where out_map serves
    int n_batches, int M, int N, int K, bool left_is_shared, bool right_is_shared,
    bool b_is_left, int activation, int n_streamed
) {
#if defined(TWIN_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using namespace twin;
    using Shared = Tf32Shared<BLOCK_M, BLOCK_N, NUM_STAGES, NUM_PLANES>;
    constexpr int STAGE_BYTES =
        int{sizeof(Shared::left[0])} + int{sizeof(Shared::right[0])};
    DYNAMIC_SHARED(shared_bytes, 1024);
    auto& shared = *reinterpret_cast<Shared*>(shared_bytes);

    // -- tile: parts of those that are shared, then every gridDim.x-th one
    const int out_block_m = b_is_left ? BLOCK_N : BLOCK_M;
    const int out_block_n = b_is_left ? BLOCK_M : BLOCK_N;
    const int n_tile_rows = (M - 1) / out_block_m + 1;
    const int n_tile_cols = (N - 1) / out_block_n + 1;
    const int n_tiles = n_batches * n_tile_rows * n_tile_cols;
    const int block = blockIdx.x, n_blocks = gridDim.x;
    const Parts parts{n_streamed, (K - 1) / TF32_BLOCK_K + 1, n_blocks};
    const auto origin_of = [&](int tile) {
        return tile_at(tile, n_tile_rows, n_tile_cols, out_block_m, out_block_n);
    };
    // Broadcast from one lane, so that the compiler knows it to be uniform in a warp.
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP_SIZE, 0);
    const int thread = threadIdx.x % WARPGROUP_SIZE;
    RingPosition<NUM_STAGES> ring;
    if (threadIdx.x == 0) {
        init_barriers(shared, NUM_CONSUMERS<BLOCK_M> * (WARPGROUP_SIZE / WARP_SIZE));
    }
    __syncthreads();
    ptx::griddepcontrol_wait();

    // -- load: by one thread, each stage as soon as all consumers have used what was there
    if (warpgroup == NUM_CONSUMERS<BLOCK_M>) {
        ptx::setmaxnreg_dec<24>();
        if (thread != 0) return;
        for (Part part = parts.first(block); part.tile < n_tiles;
             part = parts.next(block, part)) {
            const TileOrigin tile = origin_of(part.tile);
            const int left = b_is_left ? tile.col : tile.row;
            const int right = b_is_left ? tile.row : tile.col;
            const int left_batch = left_is_shared ? 0 : tile.batch;
            const int right_batch = right_is_shared ? 0 : tile.batch;
            const int plane_size = right_is_shared ? 1 : n_batches;
            for (int step = 0; step < part.n_steps; ++step) {
                const int k = (part.first_step + step) * TF32_BLOCK_K;
                uint64_t* full = &shared.full[ring.stage];
                ptx::mbarrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
                ptx::mbarrier_arrive_expect_bytes(full, STAGE_BYTES);
                load_left<LEFT_MAJOR>(
                    shared.left[ring.stage], left_map, left, k, left_batch, full
                );
                for (int plane = 0; plane < NUM_PLANES; ++plane) {
                    load_boxes(
                        shared.right[ring.stage][plane], right_map, right, k,
                        plane * plane_size + right_batch, full
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
    const uint64_t right_stages =
        ptx::wgmma_descriptor(&shared.right[0], sizeof(Box), 8 * ROW_BYTES);
    int turn_parity = 0;

    for (Part part = parts.first(block); part.tile < n_tiles;
         part = parts.next(block, part)) {
        const int n_steps = part.n_steps;
        const bool takes_turns = NUM_CONSUMERS<BLOCK_M> == 2 && n_steps > NUM_STAGES;

        // -- compute: the next step's fragments are loaded while this one's are multiplied
        float sums[BLOCK_N / 8][2][2];
        auto& all_sums = reinterpret_cast<float (&)[BLOCK_N / 2]>(sums);
        if constexpr (NUM_PLANES == 2) {
            for (float& sum : all_sums) sum = 0.0f;
        }
        const auto load = [&] {
            ptx::mbarrier_wait(&shared.full[ring.stage], ring.parity);
            return load_left_step<NUM_PLANES, LEFT_MAJOR>(
                shared.left[ring.stage][warpgroup], thread
            );
        };
        auto left = load();
        for (int step = 0; step < n_steps; ++step) {
            // Before its last steps the second warpgroup waits until the first one is nearly
            // done: from then on one is at its epilogue while the other multiplies.
            if (takes_turns && warpgroup == 1 && step == n_steps - NUM_STAGES) {
                ptx::mbarrier_wait(&shared.turn, turn_parity);
                turn_parity ^= 1;
            }
            const int stage = ring.stage;
            const uint64_t right =
                ptx::wgmma_advance(right_stages, stage * int{sizeof(shared.right[0])});
            float step_sums[BLOCK_N / 2];
            ptx::wgmma_fence();
            if constexpr (NUM_PLANES == 1) {
                #pragma unroll
                for (int i = 0; i < NUM_FRAGMENTS; ++i) {
                    ptx::wgmma_m64k8<BLOCK_N>(
                        all_sums, left.planes[0][i], ptx::wgmma_advance(right, i * 32),
                        step > 0 || i > 0
                    );
                }
            } else {
                // The tensor cores cut off the bits that a sum has no room for. So they sum
                // up one step, the small products first, and steps are added with rounding.
                #pragma unroll
                for (int i = 0; i < 3 * NUM_FRAGMENTS; ++i) {
                    const int left_plane = i < NUM_FRAGMENTS;
                    const int right_plane = i / NUM_FRAGMENTS == 1;
                    const int offset = right_plane * int{sizeof(shared.right[0][0])} +
                                       i % NUM_FRAGMENTS * 32;
                    ptx::wgmma_m64k8<BLOCK_N>(
                        step_sums, left.planes[left_plane][i % NUM_FRAGMENTS],
                        ptx::wgmma_advance(right, offset), i > 0
                    );
                }
            }
            ptx::wgmma_commit_group();
            ring.advance();
            LeftStep<NUM_PLANES> next_left;
            if (step + 1 < n_steps) next_left = load();
            ptx::wgmma_wait_group<0>();
            __syncwarp();  // all of its lanes have read fragments
            if (thread % WARP_SIZE == 0) ptx::mbarrier_arrive(&shared.empty[stage]);
            if (step + 1 < n_steps) left = next_left;
            if constexpr (NUM_PLANES == 2) {
                #pragma unroll
                for (int i = 0; i < BLOCK_N / 2; ++i) all_sums[i] += step_sums[i];
            }
        }
        // The products are done. Not earlier, or the two would share the tensor cores in these last steps.
        if (takes_turns && warpgroup == 0 && thread == 0) {
            ptx::mbarrier_arrive(&shared.turn);
        }

        // -- parts: their sums, which matmul_sum_kernel adds
        if (n_steps < parts.n_steps) {
            const int64_t place = parts.place_of(block, part.tile);
            store_tf32_part<LEFT_MAJOR>(
                parts_ptr + place * BLOCK_M * BLOCK_N, sums, warpgroup * BOX_SIZE,
                out_block_n, b_is_left, thread
            );
            continue;
        }

        // -- epilogue: in place; the bias is along out's columns, which may be the left rows
        const TileOrigin tile = origin_of(part.tile);
        const auto bias_at = [&](int col) {
            return bias_ptr != nullptr && col < N ? bias_ptr[col] : 0.0f;
        };
        const auto finish = [&](auto of_sum_and_bias) {
            #pragma unroll
            for (int i = 0; i < BLOCK_N / 8; ++i) {
                for (int j = 0; j < 4; ++j) {
                    const int half = j / 2, row = row_of<LEFT_MAJOR>(thread, half);
                    const int col = b_is_left ? warpgroup * BOX_SIZE + row
                                              : i * 8 + thread % 4 * 2 + j % 2;
                    float& sum = sums[i][half][j % 2];
                    sum = of_sum_and_bias(sum, bias_at(tile.col + col));
                }
            }
        };
        if (!is_plain) {
            const float bias_scale = argument_scale<float>(Activation{activation});
            dispatch_activation(Activation{activation}, [&]<Activation ACTIVATION>() {
                finish([&](float sum, float bias) {
                    return epilogue<ACTIVATION, float>(sum, bias_scale * bias);
                });
            });
        }

        // -- store: 64 x 64 results at a time, through shared memory
        #pragma unroll
        for (int i = 0; i < BLOCK_N / BOX_SIZE; ++i) {
            unsigned char* const boxes = shared.out[warpgroup][0].bytes;
            if (thread == 0) ptx::tma_store_wait_group_read<0>();
            ptx::named_barrier_sync(1 + warpgroup, WARPGROUP_SIZE);
            write_boxes<LEFT_MAJOR>(boxes, sums + i * BOX_SIZE / 8, b_is_left, thread);
            ptx::fence_async_proxy();
            ptx::named_barrier_sync(1 + warpgroup, WARPGROUP_SIZE);
            const int along = i * BOX_SIZE, across = warpgroup * BOX_SIZE;
            const TileOrigin origin{
                tile.batch, tile.row + (b_is_left ? along : across),
                tile.col + (b_is_left ? across : along)
            };
            if (out_ptr != nullptr) {
                store_boxes(out_ptr, boxes, origin, M, N, thread);
            } else if (thread == 0) {
                for (int box = 0; box < 2; ++box) {
                    ptx::tma_store(
                        &out_map.map, origin.col + box * BOX_COLS, origin.row,
                        origin.batch, shared.out[warpgroup][box].bytes
                    );
                }
                ptx::tma_store_commit_group();
            }
        }
    }
    ptx::griddepcontrol_launch_dependents();
    if (thread == 0) ptx::tma_store_wait_group_read<0>();
#endif
}
