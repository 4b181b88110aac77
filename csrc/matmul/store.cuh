// What the twin's warpgroups leave in memory: results, 64 x 64 of them, a box, at a time and
// through shared memory, and sums of parts of tiles.
#pragma once

#include "matmul/ring.cuh"
#include "matmul/tiles.cuh"

namespace twin {

// Writes a warpgroup's results of 64 columns to a box. A lane has 2 of each 8 columns, in row
// lane / 4 and 8 rows below.
template <int SIZE>
__device__ __forceinline__ void write_box(
    unsigned char* box, const uint32_t (&finished)[SIZE][2], int first, int thread
) {
    const int warp = thread / WARP_SIZE, lane = thread % WARP_SIZE;
    #pragma unroll
    for (int col = 0; col < BOX_SIZE; col += 16) {
        // Four matrices: rows 0 to 7 and 8 to 15 of 8 columns, and of the next 8. Lane l
        // passes the address of row l % 16 in the first or second 8 columns.
        const int i = first + col / 8;
        const uint32_t matrices[] = {
            finished[i][0], finished[i][1], finished[i + 1][0], finished[i + 1][1]
        };
        const int row = warp * 16 + lane % 16, chunk = col / 8 + lane / 16;
        ptx::stmatrix(box + row * ROW_BYTES + (chunk ^ row % 8) * 16, matrices);
    }
}

// Stores a box whose rows no tensor map describes, element by element: neighbours by
// neighbouring lanes.
template <typename T>
__device__ __forceinline__ void store_elements(
    T* out_ptr, const unsigned char* box, const TileOrigin& origin, int M, int N,
    int thread
) {
    const int col = thread % BOX_SIZE, chunk = col * int{sizeof(T)} / 16;
    out_ptr += (int64_t{origin.batch} * M + origin.row) * N + origin.col + col;
    #pragma unroll 4
    for (int row = thread / BOX_SIZE; row < BOX_SIZE;
         row += WARPGROUP_SIZE / BOX_SIZE) {
        const unsigned char* const from =
            box + row * ROW_BYTES + (chunk ^ row % 8) * 16 + col * sizeof(T) % 16;
        if (origin.row + row < M && origin.col + col < N) {
            out_ptr[int64_t{row} * N] = *reinterpret_cast<const T*>(from);
        }
    }
}

// Leaves a warpgroup's sums of a part of a tile, in rows of row_size sums. A lane has them where
// it has results.
template <int SIZE>
__device__ __forceinline__ void store_part(
    float* part_ptr, const float (&sums)[SIZE][2][2], int row_size, int thread
) {
    const int row = thread / WARP_SIZE * 16 + thread % WARP_SIZE / 4;
    part_ptr += row * row_size + thread % 4 * 2;
    #pragma unroll
    for (int i = 0; i < SIZE; ++i) {
        for (int half = 0; half < 2; ++half) {
            const auto [left, right] = sums[i][half];
            float* const pair = part_ptr + half * 8 * row_size + i * 8;
            __stcg(reinterpret_cast<float2*>(pair), float2{left, right});
        }
    }
}

}  // namespace twin
