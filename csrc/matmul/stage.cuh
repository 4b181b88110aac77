// How a and b come to a stage of the ring.
#pragma once

#include "common/ptx/multicast.cuh"
#include "matmul/ring.cuh"

namespace twin {

// How a stage's rows of an operand come, ROW_BYTES each, as they lie in shared memory: its own
// rows where these are along k, or else 64 rows of k for each box. A row that lies outside of
// the matrix takes a copy as long as others, so that of a matrix smaller than a tile only what
// there is is copied.
struct Copies {
    int n_rows;      // of a copy
    int stage_rows;  // of all copies, by all blocks that share them
    int n_blocks;    // 1, 2 or 4
    int first;       // row of this block's copies
    int n_own_rows;  // 0 where other blocks copy all that there is
};

// Of `block_size` rows or columns of a tile, where the matrix has `size`.
__host__ __device__ constexpr Copies copies_of(
    ptx::Major major, int64_t size, int block_size, int n_blocks, int block = 0
) {
    const int shift = n_blocks >> 1;  // divides by 1, 2 or 4
    const int n_outer = size < block_size ? static_cast<int>(size) : block_size;
    if (major == ptx::Major::K) {
        // Shares begin where the order of swizzled chunks does, every 8 rows.
        const int n_shared = (((n_outer - 1) >> (3 + shift)) + 1) * 8;
        const int n_rows = n_blocks == 1 ? n_outer : n_shared, first = block * n_rows;
        int stage_rows = n_rows;
        while (stage_rows < n_outer) stage_rows += n_rows;
        return {n_rows, stage_rows, n_blocks, first, first < n_outer ? n_rows : 0};
    }
    const int n_boxes = (n_outer - 1) / BOX_SIZE + 1;
    const int n_own_rows = n_boxes * BOX_SIZE >> shift;
    const bool have_whole_boxes = n_own_rows % BOX_SIZE == 0;
    const int n_rows = have_whole_boxes ? BOX_SIZE : BOX_SIZE >> shift;
    return {n_rows, n_boxes * BOX_SIZE, n_blocks, block * n_own_rows, n_own_rows};
}

// Zeros for the rows of all stages, from first_row on, that no copy fills.
template <int NUM_STAGES, int NUM_BOXES>
__device__ __forceinline__ void clear_rows(
    Box (&stages)[NUM_STAGES][NUM_BOXES], int first_row
) {
    constexpr int NUM_ROWS = NUM_BOXES * BOX_SIZE;
    constexpr int ROW_CHUNKS = ROW_BYTES / int{sizeof(uint4)};
    if (first_row == NUM_ROWS) return;
    for (auto& boxes : stages) {
        auto* const chunks = reinterpret_cast<uint4*>(boxes);
        for (int i = first_row * ROW_CHUNKS + threadIdx.x; i < NUM_ROWS * ROW_CHUNKS;
             i += blockDim.x) {
            chunks[i] = {};
        }
    }
    ptx::fence_async_proxy();
}

// Starts this block's copies of a stage, from `outer` on along the operand's outer dimension,
// for all blocks that share them.
template <ptx::Major MAJOR, int NUM_BOXES>
__device__ __forceinline__ void load_stage(
    Box (&boxes)[NUM_BOXES], const TensorMap& map, int outer, int k, int batch,
    uint64_t* full, const Copies& copies
) {
    const auto copy = [&](int row, int x, int y) {
        void* const place = boxes->bytes + row * ROW_BYTES;
        if (copies.n_blocks == 1) {
            ptx::tma_load(place, &map.map, x, y, batch, full);
        } else {
            const uint16_t all = (1 << copies.n_blocks) - 1;
            ptx::tma_load_multicast(place, &map.map, x, y, batch, full, all);
        }
    };
    const int first = copies.first;
    if constexpr (MAJOR == ptx::Major::K) {
        if (copies.n_own_rows > 0) copy(first, k, outer + first);
    } else if (copies.n_blocks == 1) {
        #pragma unroll
        for (int box = 0; box < NUM_BOXES * BOX_SIZE; box += BOX_SIZE) {
            if (box < copies.n_own_rows) copy(box, outer + box, k);
        }
    } else {
        #pragma unroll 1
        for (int i = 0; i < copies.n_own_rows; i += copies.n_rows) {
            const int box_row = (first + i) % BOX_SIZE;
            copy(first + i, outer + first + i - box_row, k + box_row);
        }
    }
}

}  // namespace twin
