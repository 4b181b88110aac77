// The order of a product's tiles, and how blocks that share tiles share out their steps.
#pragma once

#include "common/launch.cuh"

// Where a tile begins.
struct TileOrigin {
    int batch;
    int row;
    int col;
};

// The index-th tile. Tiles are counted column by column within GROUP_M rows of tiles, so
// that those under way at a time read few different rows and columns, which stay in the L2.
__device__ __forceinline__ TileOrigin
tile_at(int index, int n_tile_rows, int n_tile_cols, int block_m, int block_n) {
    constexpr int GROUP_M = 8;
    int batch = 0, first_row = 0;
    // A small product is one group, whose blocks need not wait for divisions.
    if (index >= min(n_tile_rows, GROUP_M) * n_tile_cols) [[unlikely]] {
        batch = index / (n_tile_rows * n_tile_cols);
        index %= n_tile_rows * n_tile_cols;
        first_row = index / (GROUP_M * n_tile_cols) * GROUP_M;
        index %= GROUP_M * n_tile_cols;
    }
    const unsigned n_rows = min(n_tile_rows - first_row, GROUP_M);
    const unsigned row = index % n_rows, col = index / n_rows;
    return {batch, (first_row + int(row)) * block_m, int(col) * block_n};
}

// What a block multiplies in one go: the steps of a tile along k, mostly all of them.
struct Part {
    int tile;
    int first_step;
    int n_steps;
};

// Which parts a block takes. The steps of the first n_streamed tiles, counted tile by tile, are
// shared out among all blocks; of the other tiles a block takes every n_blocks-th.
struct Parts {
    int n_streamed;
    int n_steps;  // of a tile
    int n_blocks;

    // The streamed steps that blocks before this one take.
    __device__ int start_of(int block) const {
        const int n = n_streamed * n_steps;
        return n / n_blocks * block + min(n % n_blocks, block);
    }

    // The block that takes a streamed step.
    __device__ int block_of(int step) const {
        const int n = n_streamed * n_steps;
        const int share = n / n_blocks, n_longer = n % n_blocks;  // by one step
        return step < n_longer * (share + 1) ? step / (share + 1)
                                             : (step - n_longer) / share;
    }

    // Where a block leaves its part of a streamed tile: it has two places, the second one for
    // a tile that it does not begin with.
    __device__ int place_of(int block, int tile) const {
        return 2 * block + (start_of(block) < tile * n_steps);
    }

    __device__ Part first(int block) const {
        if (n_streamed == 0) return {block, 0, n_steps};
        const int start = start_of(block);
        return streamed(block, start / n_steps, start % n_steps);
    }

    __device__ Part next(int block, const Part& part) const {
        if (part.tile < n_streamed) return streamed(block, part.tile + 1, 0);
        return {part.tile + n_blocks, 0, n_steps};
    }

    // The part from this step on, or else the block's first whole tile.
    __device__ Part streamed(int block, int tile, int step) const {
        const int n_left = start_of(block + 1) - tile * n_steps - step;
        if (n_left > 0) return {tile, step, min(n_steps - step, n_left)};
        return {n_streamed + block, 0, n_steps};
    }
};
