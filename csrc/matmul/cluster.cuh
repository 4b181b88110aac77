// The blocks of a cluster of the twin, which share what they load.
//
// Their tiles lie in a column of out or in a row, and make up one large tile. In a column they
// multiply by the same columns of b, in a row they have the same rows of a: each block loads a
// share of these, which TMA brings to all. That counts where the rows of an operand do not begin
// lines of the L2: a multiprocessor takes nearly three times as long to load such boxes.
#pragma once

#include "common/launch.cuh"
#include "common/ptx/barrier.cuh"
#include "common/ptx/cluster.cuh"
#include "common/ptx/multicast.cuh"
#include "matmul/stage.cuh"
#include "matmul/tiles.cuh"

template <int BLOCK_M, int BLOCK_N>
struct Cluster {
    int n_rows;                    // blocks in a column of out, or 1
    int n_cols;                    // blocks in a row of out, or 1
    int n_tile_rows, n_tile_cols;  // large tiles of out

    __device__ Cluster(int n_rows, int n_cols, int M, int N)
        : n_rows(n_rows),
          n_cols(n_cols),
          n_tile_rows(quotient((M - 1) / BLOCK_M, n_rows) + 1),
          n_tile_cols(quotient((N - 1) / BLOCK_N, n_cols) + 1) {}

    // By 1, 2 or 4, without a division.
    __device__ static int quotient(int n, int size) { return n >> (size >> 1); }

    __device__ int size() const { return n_rows * n_cols; }
    __device__ int index() const { return quotient(blockIdx.x, size()); }
    __device__ int count() const { return quotient(gridDim.x, size()); }

    // A barrier for all threads of the cluster.
    __device__ void sync() const {
        if (size() > 1) {
            ptx::cluster_sync();
        } else {
            __syncthreads();
        }
    }

    // Where this block is in it.
    __device__ int row() const { return blockIdx.x & (n_rows - 1); }
    __device__ int col() const { return blockIdx.x & (n_cols - 1); }

    // What this block copies: of a for those of its row, of b for those of its column.
    __device__ twin::Copies copies_of_a(ptx::Major major, int M) const {
        return twin::copies_of(major, M, BLOCK_M, n_cols, col());
    }
    __device__ twin::Copies copies_of_b(ptx::Major major, int N) const {
        return twin::copies_of(major, N, BLOCK_N, n_rows, row());
    }

    // Where this block's tile of a large one begins.
    __device__ TileOrigin origin_of(int tile) const {
        TileOrigin origin =
            tile_at(tile, n_tile_rows, n_tile_cols, n_rows * BLOCK_M, n_cols * BLOCK_N);
        origin.row += row() * BLOCK_M, origin.col += col() * BLOCK_N;
        return origin;
    }

    // The sums in a row of a part, which is of a large tile, and this block's rows in it.
    __device__ int part_cols() const { return n_cols * BLOCK_N; }
    __device__ float* rows_of(float* parts_ptr, int64_t place, int own_row) const {
        const int64_t part_row = place * n_rows * BLOCK_M + row() * BLOCK_M + own_row;
        return parts_ptr + part_row * part_cols() + col() * BLOCK_N;
    }

    // Tells all blocks, a thread each, that one of their stages may be filled again here.
    __device__ void release(uint64_t* empty, int thread) const {
        if (thread < size()) ptx::mbarrier_arrive_remote(empty, thread);
    }
};
