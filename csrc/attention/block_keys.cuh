// Which keys a block owns, for the rungs of the backward that walk over tiles of queries.
#pragma once

#include "common/launch.cuh"

// Up to BLOCK_N keys of one head of k and v.
struct BlockKeys {
    int64_t batch;
    int64_t kv_head;
    int64_t key;  // the first one

    // The first keys, which the most queries see if attention is causal, come first.
    template <int BLOCK_N>
    __device__ static BlockKeys of_block(int n_kv_heads, int64_t n_keys) {
        const int64_t n_tiles = (n_keys + BLOCK_N - 1) / BLOCK_N;
        const int64_t matrix = blockIdx.x / n_tiles;
        return {
            matrix / n_kv_heads, matrix % n_kv_heads, blockIdx.x % n_tiles * BLOCK_N
        };
    }
};
