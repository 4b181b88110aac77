// Which queries a block owns, for the rungs that walk over tiles of keys.
#pragma once

#include "attention/sequences.cuh"

// Up to BLOCK_M queries of one head. A packed sequence may have a block too many, without any.
struct BlockQueries {
    Sequence sequence;
    int64_t head;
    int64_t kv_head;
    int64_t query;  // the first one

    // The last queries of a head, which see the most keys if attention is causal, come first.
    template <int BLOCK_M, bool ARE_PACKED>
    __device__ static BlockQueries of_block(
        int n_heads, int n_kv_heads, const Sequences& sequences
    ) {
        const int n_sharing = n_heads / n_kv_heads;
        if constexpr (ARE_PACKED) {
            const auto [i, head, index, n_tiles] =
                sequences.queries().of_block<BLOCK_M>(n_heads);
            Sequence sequence = sequences.packed(i);
            if (!sequences.contain(i)) sequence.n_keys = 0;
            return {sequence, head, head / n_sharing, (n_tiles - 1 - index) * BLOCK_M};
        }
        const int64_t n_tiles = (sequences.n_queries + BLOCK_M - 1) / BLOCK_M;
        const int64_t matrix = blockIdx.x / n_tiles, head = matrix % n_heads;
        return {
            sequences.of_batch(matrix / n_heads, n_heads), head, head / n_sharing,
            (n_tiles - 1 - blockIdx.x % n_tiles) * BLOCK_M
        };
    }
};
