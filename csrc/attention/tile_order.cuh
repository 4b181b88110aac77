// The tiles that blocks on Hopper take: of queries, or in the backward of keys, too; their order,
// and the keys or queries that go with each.
#pragma once

#include "attention/scores.cuh"
#include "matmul/ring.cuh"

// Starts the count of tiles that blocks take. What T is does not matter here.
template <typename T>
__global__ void attention_count_kernel(int* __restrict__ n_taken_ptr) {
    *n_taken_ptr = 0;
}

namespace twin {

// Which keys a call's queries see, and which queries see a key.
struct Window {
    int n_queries;
    int n_keys;
    int left;
    int right;

    __device__ Keys of_query(int query) const {
        return visible_keys(query, n_queries, n_keys, left, right);
    }
    __device__ Queries of_key(int key) const {
        return seeing_queries(key, n_queries, n_keys, left, right);
    }
};

// A head, of all batches' heads, and one of its tiles.
struct HeadTile {
    int head;
    int tile;
};

// The index-th tile. Tiles are counted head by head within heads_per_section heads, so that
// what they read stays in the L2 meanwhile.
__device__ __forceinline__ HeadTile
head_tile_at(int index, int n_all_heads, int n_tiles, int heads_per_section) {
    const int first_head = index / (heads_per_section * n_tiles) * heads_per_section;
    index -= first_head * n_tiles;
    const int n_section = min(n_all_heads - first_head, heads_per_section);
    return {first_head + index % n_section, index / n_section};
}

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
// that no block has a long tile left in the end.
template <int BLOCK_M, int BLOCK_N>
__device__ __forceinline__ QueryTile query_tile_at(
    int index, int n_batches, int n_heads, int heads_per_section, const Window& window
) {
    const int n_tiles = (window.n_queries - 1) / BLOCK_M + 1;
    const auto [head, tile] =
        head_tile_at(index, n_batches * n_heads, n_tiles, heads_per_section);
    const int row = (n_tiles - 1 - tile) * BLOCK_M;
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

// Queries of one of the heads that share keys.
struct QueryStep {
    int head;  // among these heads
    int row;
    int row_step;

    // Of the same queries, head by head.
    __device__ void advance(int n_sharing) {
        if (++head < n_sharing) return;
        head = 0;
        row += row_step;
    }
};

// BLOCK_N keys of a head, and the tiles of BLOCK_M queries that see any of them: n_steps of
// them for each head that shares the keys.
struct KeyTile {
    int batch;
    int kv_head;
    int key;
    int first_row;  // where the first tile of queries begins
    int n_steps;
    // Whether its head's keys are taken from the last ones back to the first.
    bool is_from_last;

    // From the last queries back to the first, or the other way around if keys are, too.
    template <int BLOCK_M>
    __device__ QueryStep begin() const {
        if (is_from_last) return {0, first_row, BLOCK_M};
        return {0, first_row + (n_steps - 1) * BLOCK_M, -BLOCK_M};
    }
};

// The index-th tile. Causal keys that come first are seen by the most queries, and are taken
// first, so that no block has a long tile left in the end. Only in the first n_from_last heads
// keys are taken from the last ones back.
template <int BLOCK_M, int BLOCK_N>
__device__ __forceinline__ KeyTile key_tile_at(
    int index, int n_batches, int n_kv_heads, int heads_per_section, int n_from_last,
    const Window& window
) {
    const int n_tiles = (window.n_keys - 1) / BLOCK_N + 1;
    const auto [head, tile] =
        head_tile_at(index, n_batches * n_kv_heads, n_tiles, heads_per_section);
    const bool is_from_last = head < n_from_last;
    const int key = (is_from_last ? n_tiles - 1 - tile : tile) * BLOCK_N;
    const int last_key = min(key + BLOCK_N, window.n_keys) - 1;
    const int seen_from = window.of_key(key).first;
    const int seen_to = window.of_key(last_key).end;
    const int first_row = seen_from / BLOCK_M * BLOCK_M;
    const int n_steps =
        seen_from < seen_to ? (seen_to - first_row + BLOCK_M - 1) / BLOCK_M : 0;
    return {head / n_kv_heads, head % n_kv_heads, key,
            first_row,         n_steps,           is_from_last};
}

}  // namespace twin
