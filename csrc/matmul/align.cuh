// Copies of operands that cannot be read in place, or not fast.
//
// Rows have to begin at multiples of 16 bytes: the tensor memory accelerator asks for that, and
// so do copies of 16 bytes. Without it, each word or element is copied by itself in every block
// that needs it. And the tensor cores take one operand of tf32 along k alone, which is transposed
// where it is not; for tf32x3, each of its elements is split in two. A copy costs a launch, and
// two accesses to memory for each element.
#pragma once

#include "common/launch.cuh"
#include "common/ptx/griddepcontrol.cuh"
#include "matmul/split.cuh"

namespace align {
constexpr int NUM_THREADS = 256;
constexpr int ROWS_PER_BLOCK = NUM_THREADS / WARP_SIZE;
constexpr int COLS_PER_BLOCK = 8 * WARP_SIZE;
constexpr int SQUARE_SIZE = 2 * WARP_SIZE;  // rows and columns that a block transposes

// Elements from row to row of a copy: multiples of 16 bytes or, of long rows, of a line of the
// L2.
constexpr int64_t stride_of(int64_t n_cols, int64_t element_bytes) {
    const int64_t step = (n_cols * element_bytes < 512 ? 16 : 128) / element_bytes;
    return ceil_div(n_cols, step) * step;
}

// Stores an element or, to two planes, its large and its small part.
template <int NUM_PLANES, typename T>
__device__ __forceinline__ void store_planes(
    T* copy_ptr, int64_t copy_stride_plane, T element
) {
    if constexpr (NUM_PLANES == 2) {
        const SplitFloat split = split_float(element);
        copy_ptr[0] = split.large;
        copy_ptr[copy_stride_plane] = split.small;
    } else {
        copy_ptr[0] = element;
    }
}
}  // namespace align

// Rows are those in memory, whatever they are in the product. A warp copies a part of one.
template <typename T, int NUM_PLANES>
__global__ void __launch_bounds__(align::NUM_THREADS) matmul_align_kernel(
    T* __restrict__ copy_ptr,  // (NUM_PLANES, n_batches, n_rows, n_cols)
    const T* x_ptr,            // (n_batches, n_rows, n_cols)
    int64_t n_rows, int64_t n_cols, int64_t stride_batch, int64_t stride_row,
    int64_t copy_stride_row, int64_t copy_stride_plane
) {
    using namespace align;
    // -- tile: ROWS_PER_BLOCK rows, COLS_PER_BLOCK columns
    ptx::griddepcontrol_launch_dependents();
    const int64_t n_row_blocks = (n_rows - 1) / ROWS_PER_BLOCK + 1;
    const int64_t n_col_blocks = (n_cols - 1) / COLS_PER_BLOCK + 1;
    const int64_t batch = blockIdx.x / (n_row_blocks * n_col_blocks);
    const int64_t index = blockIdx.x % (n_row_blocks * n_col_blocks);
    const int64_t col = index % n_col_blocks * COLS_PER_BLOCK + threadIdx.x % WARP_SIZE;
    const int64_t row = index / n_col_blocks * ROWS_PER_BLOCK + threadIdx.x / WARP_SIZE;
    ptx::griddepcontrol_wait();
    if (row >= n_rows) return;
    x_ptr += batch * stride_batch + row * stride_row + col;
    copy_ptr += (batch * n_rows + row) * copy_stride_row + col;

    // -- store: all elements are on their way before the first is stored
    T elements[COLS_PER_BLOCK / WARP_SIZE];
    const auto for_each = [&](auto&& use) {
        #pragma unroll
        for (int i = 0; i < COLS_PER_BLOCK / WARP_SIZE; ++i) {
            if (col + i * WARP_SIZE < n_cols) use(elements[i], i * WARP_SIZE);
        }
    };
    for_each([&](T& element, int offset) { element = x_ptr[offset]; });
    for_each([&](T& element, int offset) {
        store_planes<NUM_PLANES>(copy_ptr + offset, copy_stride_plane, element);
    });
}

// A block transposes a square. Its rows come to shared memory, and its columns leave from there;
// a row there has an element more, so that columns are spread over all banks.
template <typename T, int NUM_PLANES>
__global__ void __launch_bounds__(align::NUM_THREADS) matmul_transpose_kernel(
    T* __restrict__ copy_ptr,  // (NUM_PLANES, n_batches, n_cols, n_rows)
    const T* x_ptr,            // (n_batches, n_rows, n_cols)
    int64_t n_rows, int64_t n_cols, int64_t stride_batch, int64_t stride_row,
    int64_t copy_stride_row, int64_t copy_stride_plane
) {
    using namespace align;
    constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
    __shared__ T square[SQUARE_SIZE][SQUARE_SIZE + 1];

    // -- tile: SQUARE_SIZE rows and columns
    ptx::griddepcontrol_launch_dependents();
    const int64_t n_row_blocks = (n_rows - 1) / SQUARE_SIZE + 1;
    const int64_t n_col_blocks = (n_cols - 1) / SQUARE_SIZE + 1;
    const int64_t batch = blockIdx.x / (n_row_blocks * n_col_blocks);
    const int64_t index = blockIdx.x % (n_row_blocks * n_col_blocks);
    const int64_t row = index / n_col_blocks * SQUARE_SIZE;
    const int64_t col = index % n_col_blocks * SQUARE_SIZE;
    const int n_rows_left = static_cast<int>(min(n_rows - row, int64_t{SQUARE_SIZE}));
    const int n_cols_left = static_cast<int>(min(n_cols - col, int64_t{SQUARE_SIZE}));
    x_ptr += batch * stride_batch + row * stride_row + col;
    copy_ptr += (batch * n_cols + col) * copy_stride_row + row;

    // A warp takes every NUM_WARPS-th line, which is a row of x or of the copy.
    const auto for_each = [&](int n_lines, int n_left, auto&& use) {
        #pragma unroll
        for (int i = 0; i < SQUARE_SIZE / NUM_WARPS; ++i) {
            const int line = i * NUM_WARPS + threadIdx.x / WARP_SIZE;
            #pragma unroll
            for (int j = 0; j < SQUARE_SIZE / WARP_SIZE; ++j) {
                const int at = j * WARP_SIZE + threadIdx.x % WARP_SIZE;
                if (line < n_lines && at < n_left) use(line, at, i, j);
            }
        }
    };

    // -- load: all elements are on their way before the first reaches shared memory
    ptx::griddepcontrol_wait();
    T elements[SQUARE_SIZE / NUM_WARPS][SQUARE_SIZE / WARP_SIZE];
    for_each(n_rows_left, n_cols_left, [&](int line, int at, int i, int j) {
        elements[i][j] = x_ptr[line * stride_row + at];
    });
    for_each(n_rows_left, n_cols_left, [&](int line, int at, int i, int j) {
        square[line][at] = elements[i][j];
    });
    __syncthreads();

    // -- store: rows of the copy, which are columns of the square
    for_each(n_cols_left, n_rows_left, [&](int line, int at, int, int) {
        T* const place = copy_ptr + line * copy_stride_row + at;
        store_planes<NUM_PLANES>(place, copy_stride_plane, square[at][line]);
    });
}
