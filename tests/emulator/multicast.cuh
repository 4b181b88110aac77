// A kernel whose blocks share what they load: each block of a cluster loads a slice of
// every tile for all of them. With a fault, if asked for one.
#pragma once

#include "common/launch.cuh"
#include "common/ptx/barrier.cuh"
#include "common/ptx/cluster.cuh"
#include "common/ptx/multicast.cuh"
#include "common/ptx/tma.cuh"
#include "launch.h"
#include "maps.h"
#include "ptx.cuh"

namespace multicast {

enum class Fault {
    none,
    more_bytes,
    own_bytes,
    no_arrival,
    own_arrivals,
    no_end,
    no_wait
};

constexpr int STAGES = 2;
constexpr int ROWS = 16, COLUMNS = 64;  // of a tile
constexpr int TILE_BYTES = ROWS * COLUMNS * 4;
constexpr int CONSUMERS = COLUMNS;  // threads
constexpr int SHARED_BYTES = STAGES * (TILE_BYTES + 2 * 8);

// out (blocks, n_tiles, COLUMNS) = the sums over the rows of the cluster's tiles of x
// (clusters, n_tiles, ROWS, COLUMNS), times the block's rank from 1 on.
template <int BLOCKS, Fault FAULT>
__global__ void __launch_bounds__(CONSUMERS + WARP_SIZE) multicast_kernel(
    const __grid_constant__ CUtensorMap x_map, float* out, int64_t n_tiles
) {
#ifdef HAS_HOPPER
    DYNAMIC_SHARED(shared, 1024);
    auto* const full = reinterpret_cast<uint64_t*>(shared + STAGES * TILE_BYTES);
    uint64_t* const empty = full + STAGES;
    constexpr int SLICE_ROWS = ROWS / BLOCKS, SLICE_BYTES = TILE_BYTES / BLOCKS;
    constexpr int EXPECTED_BYTES = FAULT == Fault::more_bytes  ? TILE_BYTES + 16
                                   : FAULT == Fault::own_bytes ? SLICE_BYTES
                                                               : TILE_BYTES;
    // Of how many blocks the consumers release a stage.
    constexpr int RELEASING = FAULT == Fault::own_arrivals ? 1 : BLOCKS;
    const int thread = threadIdx.x, lane = thread % WARP_SIZE;
    const int rank = ptx::cluster_rank();

    if (thread == 0) {
        for (int i = 0; i < STAGES; ++i) {
            ptx::mbarrier_init(&full[i], 1);
            ptx::mbarrier_init(&empty[i], RELEASING * CONSUMERS / WARP_SIZE);
        }
        ptx::fence_mbarrier_init();
    }
    ptx::cluster_sync();

    if (thread == CONSUMERS) {
        const int first_row = blockIdx.x / BLOCKS * n_tiles * ROWS + rank * SLICE_ROWS;
        for (int tile = 0; tile < n_tiles; ++tile) {
            const int stage = tile % STAGES, parity = tile / STAGES % 2;
            ptx::mbarrier_wait(&empty[stage], parity ^ 1);
            ptx::mbarrier_arrive_expect_bytes(&full[stage], EXPECTED_BYTES);
            unsigned char* const slice =
                shared + stage * TILE_BYTES + rank * SLICE_BYTES;
            ptx::tma_load_multicast(
                slice, &x_map, 0, first_row + tile * ROWS, 0, &full[stage],
                (1 << BLOCKS) - 1
            );
        }
        // A block must not return while others may arrive at its barriers.
        for (int tile = n_tiles; tile < n_tiles + STAGES; ++tile) {
            const int stage = tile % STAGES, parity = tile / STAGES % 2;
            if (FAULT != Fault::no_end) ptx::mbarrier_wait(&empty[stage], parity ^ 1);
        }
    } else if (thread < CONSUMERS) {
        for (int tile = 0; tile < n_tiles; ++tile) {
            const int stage = tile % STAGES, parity = tile / STAGES % 2;
            if (FAULT != Fault::no_wait) ptx::mbarrier_wait(&full[stage], parity);
            const auto* x = reinterpret_cast<float*>(shared + stage * TILE_BYTES);
            float sum = 0.0f;
            for (int row = 0; row < ROWS; ++row) sum += x[row * COLUMNS + thread];
            out[(blockIdx.x * n_tiles + tile) * COLUMNS + thread] = sum * (rank + 1);
            // The arrival orders no reads, but those of the tile are over: out has the sum.
            __syncwarp();
            const bool arrives = FAULT != Fault::no_arrival || rank == 0 || lane != 0;
            if (lane < RELEASING && arrives) {
                const int block = RELEASING == 1 ? rank : lane;
                ptx::mbarrier_arrive_remote(&empty[stage], block);
            }
        }
    }
#endif
}

template <int BLOCKS, Fault FAULT = Fault::none>
int run(float* out, float* x, int64_t n_tiles, int64_t n_clusters) {
    CUtensorMap map{};
    const int64_t n_rows = n_clusters * n_tiles * ROWS;
    const bool is_made = make_map(
        &map, x, {COLUMNS, n_rows, 1}, {COLUMNS, n_rows * COLUMNS},
        {COLUMNS, ROWS / BLOCKS}, CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        CU_TENSOR_MAP_SWIZZLE_NONE
    );
    if (!is_made) return 1;
    return launch_clusters(
        multicast_kernel<BLOCKS, FAULT>, BLOCKS, BLOCKS * n_clusters,
        CONSUMERS + WARP_SIZE, SHARED_BYTES, map, out, n_tiles
    );
}

}  // namespace multicast
