// The parts of scaled_matmul_kernel: its tiles, its shared memory, and how results leave.
#pragma once

#include "common/ptx/mma.cuh"
#include "matmul/stage.cuh"
#include "matmul/store.cuh"
#include "matmul/tf32_parts.cuh"
#include "scaled_matmul/float8.cuh"

namespace twin {

constexpr int SCALED_BLOCK_K = ROW_BYTES;  // bytes are elements
constexpr int SCALED_NUM_CONSUMERS = 2;    // warpgroups that multiply; one more loads
constexpr int SCALED_BLOCK_M = SCALED_NUM_CONSUMERS * BOX_SIZE;
constexpr int SCALED_NUM_THREADS = (SCALED_NUM_CONSUMERS + 1) * WARPGROUP_SIZE;

// Tiles have as many rows, and stages that take 192 KB. The costs compare, as measured on an
// H200: a large tile reads less for each product, and the small one is for products of few rows.
struct ScaledTile {
    int block_n;
    int num_stages;
    int cost;
};
constexpr ScaledTile SCALED_TILES[] = {{128, 6, 3}, {64, 8, 2}};

template <int BLOCK_N, int NUM_STAGES>
struct ScaledShared {
    Box a[NUM_STAGES][SCALED_NUM_CONSUMERS];
    Box b[NUM_STAGES][BLOCK_N / BOX_SIZE];
    Box out[SCALED_NUM_CONSUMERS][2];
    float2 scale_b[SCALED_NUM_CONSUMERS][BLOCK_N / 2];  // of the tile's columns
    uint64_t full[NUM_STAGES];
    uint64_t empty[NUM_STAGES];
};

// Stores a warpgroup's results, 64 x 64 of them, through shared memory: one box of 16 bits or
// two boxes of float32. A lane has 2 of each 8 columns, in row lane / 4 and 8 rows below.
template <typename T>
__device__ __forceinline__ void store_results(
    T* out_ptr, const CUtensorMap* out_map, Box (&boxes)[2], int number,
    const float (&results)[BOX_SIZE / 8][2][2], const TileOrigin& origin, int M, int N,
    int barrier, int thread
) {
    constexpr bool IS_FLOAT32 = sizeof(T) == 4;
    unsigned char* const bytes = boxes[IS_FLOAT32 ? 0 : number % 2].bytes;
    if (thread == 0) ptx::tma_store_wait_group_read<IS_FLOAT32 ? 0 : 1>();
    ptx::named_barrier_sync(barrier, WARPGROUP_SIZE);
    if constexpr (IS_FLOAT32) {
        write_boxes<ptx::Major::K>(bytes, results, false, thread);
    } else {
        uint32_t finished[BOX_SIZE / 8][2];
        #pragma unroll
        for (int i = 0; i < BOX_SIZE / 4; ++i) {
            const auto [left, right] = results[i / 2][i % 2];
            finished[i / 2][i % 2] =
                __builtin_bit_cast(uint32_t, from_float<T>(Vec<float, 2>{left, right}));
        }
        write_box(bytes, finished, 0, thread);
    }
    ptx::fence_async_proxy();
    ptx::named_barrier_sync(barrier, WARPGROUP_SIZE);
    if (out_ptr != nullptr) {
        if constexpr (IS_FLOAT32) {
            store_boxes(out_ptr, bytes, origin, M, N, thread);
        } else {
            store_elements(out_ptr, bytes, origin, M, N, thread);
        }
    } else if (thread == 0) {
        #pragma unroll
        for (int i = 0; i < (IS_FLOAT32 ? 2 : 1); ++i) {
            ptx::tma_store(
                out_map, origin.col + i * BOX_COLS, origin.row, 0,
                bytes + i * int{sizeof(Box)}
            );
        }
        ptx::tma_store_commit_group();
    }
}

}  // namespace twin
