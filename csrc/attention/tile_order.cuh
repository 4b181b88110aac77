// The tiles of queries that attention_kernel's blocks take: their order, and the keys that go
// with each.
#pragma once

#include "attention/scores.cuh"
#include "matmul/ring.cuh"

// Starts the count of tiles that blocks take. What T is does not matter here.
template <typename T>
__global__ void attention_count_kernel(int* __restrict__ n_taken_ptr) {
    *n_taken_ptr = 0;
}

namespace twin {

// Which keys a call's queries see.
struct Window {
    int n_queries;
    int n_keys;
    int left;
    int right;

    __device__ Keys of_query(int query) const {
        return visible_keys(query, n_queries, n_keys, left, right);
    }
};

// BLOCK_M queries of a head, and the tiles of BLOCK_N keys that any of them sees: n_steps of
// them, taken from the last one back to the first; -1 for no tile.
struct QueryTile {
    int batch;
    int head;
    int row;
    int last_key;  // where the last tile of keys begins
    int n_steps;

    // The same, broadcast from one lane, so that the compiler knows it to be uniform in a
    // warp, and computes what follows from it once for the warp.
    __device__ QueryTile uniform() const {
        const auto broadcast = [](int x) { return __shfl_sync(0xffffffff, x, 0); };
        return {
            broadcast(batch), broadcast(head), broadcast(row), broadcast(last_key),
            broadcast(n_steps)
        };
    }
};

// The index-th tile. Of causal queries the last ones see the most keys and come first, so
// that no block has a long tile left in the end. Tiles are counted head by head within
// heads_per_section heads, whose keys and values stay in the L2 meanwhile.
template <int BLOCK_M, int BLOCK_N>
__device__ __forceinline__ QueryTile query_tile_at(
    int index, int n_batches, int n_heads, int heads_per_section, const Window& window
) {
    const int n_tile_rows = (window.n_queries - 1) / BLOCK_M + 1;
    const int first_head =
        index / (heads_per_section * n_tile_rows) * heads_per_section;
    index -= first_head * n_tile_rows;
    const int n_section = min(n_batches * n_heads - first_head, heads_per_section);
    const int head = first_head + index % n_section;
    const int row = (n_tile_rows - 1 - index / n_section) * BLOCK_M;
    const int last_row = min(row + BLOCK_M, window.n_queries) - 1;
    const int first_key = window.of_query(row).first / BLOCK_N * BLOCK_N;
    const int end_key = window.of_query(last_row).end;
    const int n_steps = (max(end_key - first_key, 0) + BLOCK_N - 1) / BLOCK_N;
    return {
        head / n_heads, head % n_heads, row, first_key + (n_steps - 1) * BLOCK_N,
        n_steps
    };
}

// Which of a tile's steps, from `first` on up to `end`, the 64 queries from `row` on take: in
// the others none of them sees a key.
struct Steps {
    int first;
    int end;
};

template <int BLOCK_N>
__device__ __forceinline__ Steps
steps_of_rows(const QueryTile& tile, int row, const Window& window) {
    const int last_row = min(row + BOX_SIZE, window.n_queries) - 1;
    const int first_key = window.of_query(row).first,
              end_key = window.of_query(last_row).end;
    if (row > last_row || first_key >= end_key) return {tile.n_steps, tile.n_steps};
    return {
        max(tile.last_key - end_key + BLOCK_N, 0) / BLOCK_N,
        min((tile.last_key - first_key + 2 * BLOCK_N - 1) / BLOCK_N, tile.n_steps)
    };
}

}  // namespace twin
