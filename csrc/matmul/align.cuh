// Copies of operands whose rows begin anywhere, with rows that begin at multiples of 16 bytes:
// what the tensor memory accelerator asks for, and copies of 16 bytes.
//
// A copy costs a launch, and two accesses to memory for each element. Without it, each element
// is a load of its own in every block that needs it.
#pragma once

#include "common/launch.cuh"

namespace align {
constexpr int NUM_THREADS = 256;
constexpr int ROWS_PER_BLOCK = NUM_THREADS / WARP_SIZE;
constexpr int COLS_PER_BLOCK = 8 * WARP_SIZE;

// How many elements lie between the rows of a copy: 16 bytes, or a line of the L2.
constexpr int64_t stride_of(int64_t n_cols) {
    const int64_t step = n_cols < 256 ? 8 : 64;
    return ceil_div(n_cols, step) * step;
}
}  // namespace align

// Rows are those in memory, whatever they are in the product. A warp copies a part of one.
template <typename T>
__global__ void __launch_bounds__(align::NUM_THREADS) matmul_align_kernel(
    T* __restrict__ copy_ptr,  // (n_batches, n_rows, n_cols), rows stride_of(n_cols) apart
    const T* __restrict__ x_ptr,  // (n_batches, n_rows, n_cols)
    int64_t n_rows, int64_t n_cols, int64_t stride_batch, int64_t stride_row,
    int64_t copy_stride_row
) {
    using namespace align;
    // -- tile: ROWS_PER_BLOCK rows, COLS_PER_BLOCK columns
    const int64_t n_row_blocks = (n_rows - 1) / ROWS_PER_BLOCK + 1;
    const int64_t n_col_blocks = (n_cols - 1) / COLS_PER_BLOCK + 1;
    const int64_t batch = blockIdx.x / (n_row_blocks * n_col_blocks);
    const int64_t index = blockIdx.x % (n_row_blocks * n_col_blocks);
    const int64_t col = index % n_col_blocks * COLS_PER_BLOCK + threadIdx.x % WARP_SIZE;
    const int64_t row = index / n_col_blocks * ROWS_PER_BLOCK + threadIdx.x / WARP_SIZE;
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
    for_each([&](T& element, int offset) { copy_ptr[offset] = element; });
}
