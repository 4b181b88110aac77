// The parts of matmul_tf32_kernel: its shared memory, how operands come there, the fragments
// of the left one, and how results leave.
#pragma once

#include "matmul/ring.cuh"
#include "matmul/split.cuh"
#include "matmul/tiles.cuh"

namespace twin {

constexpr int TF32_BLOCK_K = ROW_BYTES / int{sizeof(float)};

// A stage has the left operand's tile and, of the right one, as many planes as it has parts.
template <int BLOCK_M, int BLOCK_N, int NUM_STAGES, int NUM_PLANES>
struct Tf32Shared {
    Box left[NUM_STAGES][BLOCK_M / BOX_SIZE];
    Box right[NUM_STAGES][NUM_PLANES][BLOCK_N / BOX_SIZE];
    Box out[NUM_CONSUMERS<BLOCK_M>][2];  // 64 x 64 results, 32 columns in each box
    uint64_t full[NUM_STAGES];
    uint64_t empty[NUM_STAGES];
    uint64_t turn;
};

// Columns of a box of float32, and rows of one that is not contiguous along k: two of them
// hold 64 rows of the left operand.
constexpr int BOX_COLS = 32, HALF_BOX_BYTES = int{sizeof(Box)} / 2;

// Starts to load an operand's rows from `outer` on, which are contiguous along k.
template <int NUM_BOXES>
__device__ __forceinline__ void load_boxes(
    Box (&boxes)[NUM_BOXES], const TensorMap& map, int outer, int k, int batch,
    uint64_t* full
) {
    for (int i = 0; i < NUM_BOXES; ++i) {
        ptx::tma_load(&boxes[i], &map.map, k, outer + i * BOX_SIZE, batch, full);
    }
}

// Starts to load the left operand's rows from `outer` on.
template <ptx::Major MAJOR, int NUM_BOXES>
__device__ __forceinline__ void load_left(
    Box (&boxes)[NUM_BOXES], const TensorMap& map, int outer, int k, int batch,
    uint64_t* full
) {
    if constexpr (MAJOR == ptx::Major::K) {
        load_boxes(boxes, map, outer, k, batch, full);
    } else {
        for (int i = 0; i < 2 * NUM_BOXES; ++i) {
            ptx::tma_load(
                boxes[i / 2].bytes + i % 2 * HALF_BOX_BYTES, &map.map,
                outer + i * BOX_COLS, k, batch, full
            );
        }
    }
}

// Which of a warpgroup's 64 rows a lane has in one half of its registers. Where the rows are
// not contiguous along k, they are taken in an order that spreads a warp's loads over all banks.
template <ptx::Major MAJOR>
__device__ __forceinline__ int row_of(int thread, int half) {
    const int warp = thread / WARP_SIZE, i = thread % WARP_SIZE / 4;
    if (MAJOR == ptx::Major::K) return warp * 16 + half * 8 + i;
    return warp / 2 * 32 + i / 4 * 16 + warp % 2 * 8 + half * 4 + i % 4;
}

// What a lane has of a warpgroup's 64 rows in a step: of each plane a fragment for every 8 of
// k.
constexpr int NUM_FRAGMENTS = TF32_BLOCK_K / 8;
template <int NUM_PLANES>
struct LeftStep {
    float planes[NUM_PLANES][NUM_FRAGMENTS][4];
};

template <int NUM_PLANES, ptx::Major MAJOR>
__device__ __forceinline__ LeftStep<NUM_PLANES> load_left_step(
    const Box& box, int thread
) {
    LeftStep<NUM_PLANES> left;
    #pragma unroll
    for (int i = 0; i < NUM_FRAGMENTS * 4; ++i) {
        const int row = row_of<MAJOR>(thread, i % 2);
        const int k = i / 2 * 4 + thread % 4;
        const int offset = MAJOR == ptx::Major::K
                               ? row * ROW_BYTES + (k / 4 ^ row % 8) * 16 + k % 4 * 4
                               : row / BOX_COLS * HALF_BOX_BYTES + k * ROW_BYTES +
                                     (row % BOX_COLS / 4 ^ k % 8) * 16 + row % 4 * 4;
        const float x = *reinterpret_cast<const float*>(box.bytes + offset);
        if constexpr (NUM_PLANES == 2) {
            const SplitFloat split = split_float(x);
            left.planes[0][i / 4][i % 4] = split.large;
            left.planes[1][i / 4][i % 4] = split.small;
        } else {
            left.planes[0][i / 4][i % 4] = x;
        }
    }
    return left;
}

// Where an element of 64 x 64 results lies in two boxes.
__device__ __forceinline__ int offset_in_boxes(int row, int col) {
    return col / BOX_COLS * int{sizeof(Box)} + row * ROW_BYTES +
           (col % BOX_COLS / 4 ^ row % 8) * 16 + col % 4 * 4;
}

// Writes 64 columns of a warpgroup's results to two boxes. A lane has 2 of each 8 columns, in
// two rows. Transposed, the results' rows are columns of the boxes.
template <ptx::Major MAJOR>
__device__ __forceinline__ void write_boxes(
    unsigned char* boxes, const float (*results)[2][2], bool is_transposed, int thread
) {
    #pragma unroll
    for (int i = 0; i < BOX_SIZE / 8; ++i) {
        for (int half = 0; half < 2; ++half) {
            const int row = row_of<MAJOR>(thread, half), col = i * 8 + thread % 4 * 2;
            const auto [left, right] = results[i][half];
            const auto place = [&](int out_row, int out_col) {
                return boxes + offset_in_boxes(out_row, out_col);
            };
            if (is_transposed) {
                *reinterpret_cast<float*>(place(col, row)) = left;
                *reinterpret_cast<float*>(place(col + 1, row)) = right;
            } else {
                *reinterpret_cast<float2*>(place(row, col)) = float2{left, right};
            }
        }
    }
}

// Stores two boxes whose rows no tensor map describes, element by element.
__device__ __forceinline__ void store_boxes(
    float* out_ptr, const unsigned char* boxes, const TileOrigin& origin, int M, int N,
    int thread
) {
    const int col = thread % BOX_SIZE;
    out_ptr += (int64_t{origin.batch} * M + origin.row) * N + origin.col + col;
    #pragma unroll 4
    for (int row = thread / BOX_SIZE; row < BOX_SIZE;
         row += WARPGROUP_SIZE / BOX_SIZE) {
        if (origin.row + row < M && origin.col + col < N) {
            out_ptr[int64_t{row} * N] =
                *reinterpret_cast<const float*>(boxes + offset_in_boxes(row, col));
        }
    }
}

// Leaves a warpgroup's sums of a part of a tile, in rows of out.
template <ptx::Major MAJOR, int SIZE>
__device__ __forceinline__ void store_tf32_part(
    float* part_ptr, const float (&sums)[SIZE][2][2], int first_row, int out_block_n,
    bool is_transposed, int thread
) {
    #pragma unroll
    for (int i = 0; i < SIZE; ++i) {
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + row_of<MAJOR>(thread, half);
            const int col = i * 8 + thread % 4 * 2;
            const auto [left, right] = sums[i][half];
            if (is_transposed) {
                __stcg(part_ptr + col * out_block_n + row, left);
                __stcg(part_ptr + (col + 1) * out_block_n + row, right);
            } else {
                float* const pair = part_ptr + row * out_block_n + col;
                __stcg(reinterpret_cast<float2*>(pair), float2{left, right});
            }
        }
    }
}

}  // namespace twin
