// Cooperative groups. nvcc compiles this file too.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "launch.h"

namespace cg = cooperative_groups;

// ---- The block ----------------------------------------------------------------------

__global__ void block_group_kernel(unsigned* out) {
    const cg::thread_block block = cg::this_thread_block();
    const unsigned blocks_before =
        blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned* row =
        out + 12 * (blocks_before * block.num_threads() + block.thread_rank());
    row[0] = block.thread_rank();
    row[1] = block.size();
    row[2] = block.group_index().x;
    row[3] = block.group_index().y;
    row[4] = block.group_index().z;
    row[5] = block.thread_index().x;
    row[6] = block.thread_index().y;
    row[7] = block.thread_index().z;
    row[8] =
        block.dim_threads().x * 10000 + block.group_dim().y * 100 + block.group_dim().z;
    row[9] = cg::group_size(block) * 10000 + cg::thread_rank(block);
    __shared__ unsigned reversed[256];
    reversed[block.size() - 1 - block.thread_rank()] = block.thread_rank();
    block.sync();
    row[10] = reversed[block.thread_rank()];
    cg::sync(block);
    row[11] = 0;
}

EXPORT int block_group(unsigned* out) {
    return launch(block_group_kernel, dim3(2, 3, 2), dim3(4, 3, 5), 0, out);
}

// ---- Tiles --------------------------------------------------------------------------

constexpr int TILE_COLUMNS = 20;

// x has every thread's contribution; rank and distance are arguments of the shuffles.
template <unsigned SIZE>
__global__ void tile_kernel(int* out, const int* x, int rank, unsigned distance) {
    const auto tile = cg::tiled_partition<SIZE>(cg::this_thread_block());
    const unsigned thread = cg::this_thread_block().thread_rank();
    const int value = x[thread];
    int* row = out + TILE_COLUMNS * thread;
    tile.sync();
    row[0] = tile.thread_rank();
    row[1] = tile.size() + 100 * tile.num_threads();
    row[2] = tile.meta_group_rank();
    row[3] = tile.meta_group_size();
    row[4] = tile.shfl(value, rank);
    row[5] = tile.shfl_up(value, distance);
    row[6] = tile.shfl_down(value, distance);
    row[7] = tile.shfl_xor(value, distance);
    row[8] = tile.any(value > 90);
    row[9] = tile.all(value > 10);
    row[10] = tile.ballot(value % 2);
    row[11] = tile.match_any(value % 3);
    int all_equal = 0;
    row[12] = tile.match_all(value / 50, all_equal);
    row[13] = all_equal;
    row[14] = cg::reduce(tile, value, cg::plus<int>());
    row[15] = cg::reduce(tile, value, cg::less<int>());
    row[16] = cg::reduce(tile, value, cg::greater<int>());
    row[17] = cg::reduce(tile, value, cg::bit_and<int>());
    row[18] = cg::reduce(tile, value, cg::bit_or<int>());
    row[19] = cg::reduce(tile, value, cg::bit_xor<int>());
}

EXPORT int tiles(int* out, const int* x, int64_t size, int64_t rank, int64_t distance) {
    const auto run = [=](auto* kernel) {
        return launch(kernel, 1, dim3(16, 2, 2), 0, out, x, rank, distance);
    };
    switch (size) {
        case 1:
            return run(tile_kernel<1>);
        case 2:
            return run(tile_kernel<2>);
        case 4:
            return run(tile_kernel<4>);
        case 8:
            return run(tile_kernel<8>);
        case 16:
            return run(tile_kernel<16>);
        default:
            return run(tile_kernel<32>);
    }
}

struct Triple {
    float x, y, z;
};

// Values of other types, tiles of tiles, and tiles that are passed on.
__device__ unsigned place(cg::thread_block_tile<4> tile) {
    return tile.meta_group_rank() * 1000 + tile.meta_group_size() * 100 +
           tile.thread_rank();
}

__global__ void tile_values_kernel(double* out) {
    const auto block = cg::this_thread_block();
    const auto warp = cg::tiled_partition<32>(block);
    const auto half_warp = cg::tiled_partition<16>(warp);
    const auto quad = cg::tiled_partition<4>(half_warp);
    const unsigned i = block.thread_rank();
    const float f = static_cast<float>(i);
    double* row = out + 8 * i;
    const Triple triple = quad.shfl_xor(Triple{f, 2 * f, 3 * f}, 3);
    row[0] = triple.x + 1e3 * triple.y + 1e6 * triple.z;
    row[1] = warp.shfl(0.5 * i, 7);
    row[2] = quad.shfl_down(static_cast<unsigned char>(i), 2);
    row[3] = place(quad);
    row[4] = place(cg::tiled_partition<4>(block));
    // Floats whose rounded sum depends on the order of additions.
    row[5] = cg::reduce(warp, 1.0f / (1.0f + f), cg::plus<float>());
    row[6] = cg::reduce(quad, 1e10 * i, [](double a, double b) { return a + b; });
    row[7] = cg::reduce(half_warp, 7 * i % 17, cg::less<unsigned>());
}

EXPORT int tile_values(double* out) {
    return launch(tile_values_kernel, 1, 64, 0, out);
}

// ---- One thread for all -------------------------------------------------------------

__global__ void invoke_one_kernel(unsigned* counter, unsigned* out) {
    const auto block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<8>(block);
    cg::invoke_one(block, [=] { atomicAdd(&counter[0], 1); });
    cg::invoke_one(tile, [=](unsigned step) { atomicAdd(&counter[1], step); }, 3u);
    const unsigned ticket =
        cg::invoke_one_broadcast(tile, [=] { return atomicAdd(&counter[2], 1); });
    out[block.thread_rank()] = ticket;
}

EXPORT int invoke_one(unsigned* counter, unsigned* out) {
    return launch(invoke_one_kernel, 1, 64, 0, counter, out);
}

// ---- Converged threads --------------------------------------------------------------

__global__ void coalesced_kernel(int* out) {
    const unsigned i = threadIdx.x;
    int* row = out + 12 * i;
    if (i % 3 == 1) {
        const auto group = cg::coalesced_threads();
        group.sync();
        const int value = static_cast<int>(i * i % 23);
        row[0] = group.thread_rank();
        row[1] = group.size();
        row[2] = group.shfl(value, 3);
        row[3] = group.shfl_up(value, 2);
        row[4] = group.shfl_down(value, 2);
        row[5] = group.any(value == 1);
        row[6] = group.all(value < 23);
        row[7] = group.ballot(value % 2);
        row[8] = group.match_any(value % 4);
        int all_equal = 0;
        row[9] = group.match_all(value, all_equal);
        row[10] = cg::reduce(group, value, cg::plus<int>());
        row[11] = static_cast<int>(
            cg::reduce(
                group, 1.0f + static_cast<float>(value),
                [](float a, float b) { return a * 0.5f + b * 0.25f; }
            ) *
            4096
        );
    }
}

EXPORT int coalesced(int* out) { return launch(coalesced_kernel, 1, 64, 0, out); }
