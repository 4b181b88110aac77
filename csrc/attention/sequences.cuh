// Where the sequence of a block's queries and keys lies: in tensors that have one of the same
// length for each batch, or in packed ones, where sequences of any lengths follow each other.
#pragma once

#include "common/launch.cuh"

// Where packed sequences begin, and the last one ends, in q, and in k and v.
struct Offsets {
    const void *q, *k;  // n_sequences + 1 ints; or null, where none are packed
    int64_t n_sequences;

    // How many tiles of `block` rows the sequences of a head have.
    int64_t count_tiles(int64_t n_batches, int64_t n_rows, int64_t block) const {
        if (q == nullptr) return n_batches * ceil_div(n_rows, block);
        return n_rows / block + n_sequences + 2;  // as PackedRows counts them
    }
};

// Queries, and the keys among which are those that they see.
struct Sequence {
    int64_t n_queries, n_keys;
    int64_t q, k;                    // where it begins, in strides of batches
    int64_t first_query, first_key;  // and in rows of contiguous tensors
    int64_t first_statistic;         // and, for its first head, in lse and delta
    int64_t statistics_per_head;

    __device__ int64_t statistic_of(int64_t head, int64_t query) const {
        return first_statistic + head * statistics_per_head + query;
    }
};

// The packed rows of q, or of k and v. Sequence i has those from begin(i) up to begin(i + 1).
// The first and the last number are those of no sequence: of the rows before the first offset,
// and behind the last. Wrong offsets are clamped, and lead nowhere outside of a tensor.
struct PackedRows {
    const int* offsets;  // n_sequences + 1 of them
    int n_sequences;
    int64_t n_rows;

    __device__ int64_t begin(int i) const {
        if (i == 0) return 0;
        if (i == n_sequences + 2) return n_rows;
        return min(max(int64_t{offsets[i - 1]}, int64_t{0}), n_rows);
    }

    // A sequence has the tiles that it needs, or one more. So a block finds its own by
    // bisection, without a sum over all sequences before it.
    template <int BLOCK>
    __device__ int64_t first_tile(int i) const {
        return begin(i) / BLOCK + i;
    }

    struct Tile {
        int i;  // of which sequence
        int64_t head;
        int64_t index;  // among the n_tiles of the sequence
        int64_t n_tiles;
    };
    // The tiles of a sequence are those of its first head, then of its second one, and so on.
    template <int BLOCK>
    __device__ Tile of_block(int n_heads) const {
        int i = 0;
        for (int end = n_sequences + 2; end - i > 1;) {
            const int middle = (i + end) / 2;
            (first_tile<BLOCK>(middle) * n_heads <= blockIdx.x ? i : end) = middle;
        }
        const int64_t first = first_tile<BLOCK>(i);
        const int64_t n_tiles = first_tile<BLOCK>(i + 1) - first;
        const int64_t index = blockIdx.x - first * n_heads;
        return {i, index / n_tiles, index % n_tiles, n_tiles};
    }
};

// The sequences of a call: of n_queries and n_keys each; of so many in all, if there are
// offsets.
struct Sequences {
    int64_t n_queries, n_keys;
    int n_sequences;
    const int *q_offsets, *k_offsets;

    __device__ PackedRows queries() const {
        return {q_offsets, n_sequences, n_queries};
    }
    __device__ PackedRows keys() const { return {k_offsets, n_sequences, n_keys}; }
    __device__ bool contain(int i) const { return 0 < i && i <= n_sequences; }

    __device__ Sequence of_batch(int64_t batch, int n_heads) const {
        const int64_t query = batch * n_queries;
        return {n_queries, n_keys,         batch,           batch,
                query,     batch * n_keys, query * n_heads, n_queries};
    }
    // A batch is a row then.
    __device__ Sequence packed(int i) const {
        const int64_t query = queries().begin(i), key = keys().begin(i);
        const int64_t query_end = queries().begin(i + 1), key_end = keys().begin(i + 1);
        return {query_end - query, key_end - key, query, key, query, key, query,
                n_queries};
    }
};
