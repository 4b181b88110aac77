// Which queries a block owns, for the rungs that walk over tiles of keys.
#pragma once

#include "common/launch.cuh"

// Up to BLOCK_M queries of one head.
struct BlockQueries {
    int64_t matrix;  // a batch's head, of all batches' heads
    int64_t batch;
    int64_t head;
    int64_t kv_head;
    int64_t query;  // the first one

    // The last queries of a head, which see the most keys if attention is causal, come first.
    template <int BLOCK_M>
    __device__ static BlockQueries of_block(
        int n_heads, int n_kv_heads, int64_t n_queries
    ) {
        const int64_t n_tiles = (n_queries + BLOCK_M - 1) / BLOCK_M;
        const int64_t matrix = blockIdx.x / n_tiles, head = matrix % n_heads;
        return {
            matrix, matrix / n_heads, head, head / (n_heads / n_kv_heads),
            (n_tiles - 1 - blockIdx.x % n_tiles) * BLOCK_M
        };
    }
};
