// The twin: Hopper's warpgroups multiply 8-bit floats straight from shared memory while one
// thread does nothing but load.
//
// The tensor cores add products of 8 bits with 13 bits of fraction alone. So they sum up one
// step of 128 along k, and steps are added in registers, with rounding. Meanwhile they multiply
// the next step, whose sums have registers of their own.
//
// That thread has the tensor memory accelerator (TMA) fill a ring of stages, ahead of the
// multiplications and into the next tile. A block takes every gridDim.x-th tile.
#pragma once

#include "common/launch.cuh"
#include "scaled_matmul/parts.cuh"

template <typename T, Float8 A_TYPE, Float8 B_TYPE, int BLOCK_N, int NUM_STAGES>
__global__ void __launch_bounds__(twin::SCALED_NUM_THREADS, 1) scaled_matmul_kernel(
    const __grid_constant__ TensorMap out_map,  // (M, N), if rows are aligned
    const __grid_constant__ TensorMap a_map,    // (M, K)
    const __grid_constant__ TensorMap b_map,    // (N, K)
    const float* __restrict__ scale_a_ptr,      // (M) or, with a stride of 0, (1)
    const float* __restrict__ scale_b_ptr,      // (N) or, likewise, (1)
    T* __restrict__ out_ptr,                    // (M, N), or null where out_map serves
    int M, int N, int K, int64_t scale_a_stride, int64_t scale_b_stride
) {
#if defined(TWIN_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using namespace twin;
    using Shared = ScaledShared<BLOCK_N, NUM_STAGES>;
    constexpr int BLOCK_M = SCALED_BLOCK_M, BLOCK_K = SCALED_BLOCK_K;
    DYNAMIC_SHARED(shared_bytes, 1024);
    auto& shared = *reinterpret_cast<Shared*>(shared_bytes);

    // -- tile: every gridDim.x-th one
    const int n_tile_rows = (M - 1) / BLOCK_M + 1, n_tile_cols = (N - 1) / BLOCK_N + 1;
    const int n_tiles = n_tile_rows * n_tile_cols, n_steps = (K - 1) / BLOCK_K + 1;
    const auto origin_of = [&](int index) {
        return tile_at(index, n_tile_rows, n_tile_cols, BLOCK_M, BLOCK_N);
    };
    // Rows that a does not have would take a copy as long as others.
    const int n_copied_rows = min(M, BLOCK_M);
    // Broadcast from one lane, so that the compiler knows it to be uniform in a warp.
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP_SIZE, 0);
    const int thread = threadIdx.x % WARPGROUP_SIZE;
    RingPosition<NUM_STAGES> ring, used;  // of the next step, and of the last one added
    if (threadIdx.x == 0) init_barriers(shared, SCALED_NUM_CONSUMERS);
    clear_rows(shared.a, n_copied_rows);
    __syncthreads();

    // -- load: by one thread, each stage as soon as all consumers have used what was there
    if (warpgroup == SCALED_NUM_CONSUMERS) {
        ptx::setmaxnreg_dec<24>();
        if (thread != 0) return;
        for (int index = blockIdx.x; index < n_tiles; index += gridDim.x) {
            const TileOrigin tile = origin_of(index);
            for (int step = 0; step < n_steps; ++step) {
                const int k = step * BLOCK_K, stage = ring.stage;
                uint64_t* full = &shared.full[stage];
                ptx::mbarrier_wait(&shared.empty[stage], ring.parity ^ 1);
                ptx::mbarrier_arrive_expect_bytes(
                    full, (n_copied_rows + BLOCK_N) * ROW_BYTES
                );
                ptx::tma_load(&shared.a[stage], &a_map.map, k, tile.row, 0, full);
                ptx::tma_load(&shared.b[stage], &b_map.map, k, tile.col, 0, full);
                ring.advance();
            }
        }
        return;
    }

    ptx::setmaxnreg_inc<240>();
    const int warp = thread / WARP_SIZE, lane = thread % WARP_SIZE;
    int n_stored = 0;
    const uint64_t a_stages =
        ptx::wgmma_descriptor(&shared.a[0][warpgroup], sizeof(Box), 8 * ROW_BYTES);
    const uint64_t b_stages =
        ptx::wgmma_descriptor(&shared.b[0], sizeof(Box), 8 * ROW_BYTES);

    for (int index = blockIdx.x; index < n_tiles; index += gridDim.x) {
        const TileOrigin tile = origin_of(index);
        const int first_row = tile.row + warpgroup * BOX_SIZE;
        // Scales are on their way while the tile is multiplied: of the rows that a lane has
        // results in, and of one column, which all lanes get through shared memory.
        float scale_a[2];
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + warp * 16 + half * 8 + lane / 4;
            scale_a[half] = row < M ? scale_a_ptr[row * scale_a_stride] : 0.0f;
        }
        const int col = tile.col + thread;
        const bool has_col = thread < BLOCK_N && col < N;
        const float scale_b = has_col ? scale_b_ptr[col * scale_b_stride] : 0.0f;

        // -- compute: a step is multiplied while the one before is added, in turns by two
        // sets of registers
        float sums[BLOCK_N / 2], even_sums[BLOCK_N / 2], odd_sums[BLOCK_N / 2];
        for (float& sum : sums) sum = 0.0f;
        const auto multiply = [&](float (&step_sums)[BLOCK_N / 2]) {
            ptx::mbarrier_wait(&shared.full[ring.stage], ring.parity);
            const uint64_t a =
                ptx::wgmma_advance(a_stages, ring.stage * int{sizeof(shared.a[0])});
            const uint64_t b =
                ptx::wgmma_advance(b_stages, ring.stage * int{sizeof(shared.b[0])});
            ring.advance();
            ptx::wgmma_fence();
            #pragma unroll
            for (int k = 0; k < BLOCK_K; k += 32) {
                ptx::wgmma_m64k32<BLOCK_N, A_TYPE, B_TYPE>(
                    step_sums, ptx::wgmma_advance(a, k), ptx::wgmma_advance(b, k), k > 0
                );
            }
            ptx::wgmma_commit_group();
        };
        const auto add = [&]<int UNFINISHED>(const float (&step_sums)[BLOCK_N / 2]) {
            ptx::wgmma_wait_group<UNFINISHED>();
            if (thread == 0) ptx::mbarrier_arrive(&shared.empty[used.stage]);
            used.advance();
            #pragma unroll
            for (int i = 0; i < BLOCK_N / 2; ++i) sums[i] += step_sums[i];
        };
        multiply(even_sums);
        int step = 1;
        for (; step + 1 < n_steps; step += 2) {
            multiply(odd_sums);
            add.template operator()<1>(even_sums);
            multiply(even_sums);
            add.template operator()<1>(odd_sums);
        }
        if (step < n_steps) {
            multiply(odd_sums);
            add.template operator()<1>(even_sums);
            add.template operator()<0>(odd_sums);
        } else {
            add.template operator()<0>(even_sums);
        }

        // -- store: after the scales, rounded once, 64 x 64 results at a time
        const int barrier = 1 + warpgroup;
        if (thread < BLOCK_N) {
            reinterpret_cast<float*>(shared.scale_b[warpgroup])[thread] = scale_b;
        }
        ptx::named_barrier_sync(barrier, WARPGROUP_SIZE);
        #pragma unroll
        for (int first_col = 0; first_col < BLOCK_N; first_col += BOX_SIZE) {
            float results[BOX_SIZE / 8][2][2];
            #pragma unroll
            for (int i = 0; i < BOX_SIZE / 8; ++i) {
                const int place = first_col / 8 + i;
                const float2 scales = shared.scale_b[warpgroup][place * 4 + lane % 4];
                #pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float* const pair = &sums[place * 4 + half * 2];
                    results[i][half][0] = pair[0] * (scale_a[half] * scales.x);
                    results[i][half][1] = pair[1] * (scale_a[half] * scales.y);
                }
            }
            store_results(
                out_ptr, &out_map.map, shared.out[warpgroup], n_stored++, results,
                {0, first_row, tile.col + first_col}, M, N, barrier, thread
            );
        }
    }
    if (thread == 0) ptx::tma_store_wait_group_read<0>();
#endif
}
