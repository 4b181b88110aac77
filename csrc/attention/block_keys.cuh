// Which keys a block owns, for the rungs of the backward that walk over tiles of queries.
#pragma once

#include "attention/sequences.cuh"

// Up to BLOCK_N keys of one head of k and v. A packed sequence may have a block too many.
struct BlockKeys {
    Sequence sequence;
    int64_t kv_head;
    int64_t key;  // the first one

    // The first keys, which the most queries see if attention is causal, come first.
    template <int BLOCK_N, bool ARE_PACKED>
    __device__ static BlockKeys of_block(
        int n_heads, int n_kv_heads, const Sequences& sequences
    ) {
        if constexpr (ARE_PACKED) {
            const auto tile = sequences.keys().of_block<BLOCK_N>(n_kv_heads);
            Sequence sequence = sequences.packed(tile.i);
            if (!sequences.contain(tile.i)) sequence.n_queries = 0;
            return {sequence, tile.head, tile.index * BLOCK_N};
        }
        const int64_t n_tiles = (sequences.n_keys + BLOCK_N - 1) / BLOCK_N;
        const int64_t matrix = blockIdx.x / n_tiles;
        return {
            sequences.of_batch(matrix / n_kv_heads, n_heads), matrix % n_kv_heads,
            blockIdx.x % n_tiles * BLOCK_N
        };
    }
};
