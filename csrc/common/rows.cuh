// Kernels that work on rows: where a row begins, and how many threads share a block.
#pragma once

#include <cstdint>

// Where a row begins. Most tensors are one batch, and are spared the division.
__device__ __forceinline__ int64_t row_offset(
    int64_t row, int64_t n_rows, int64_t rows_per_batch, int64_t stride_batch,
    int64_t stride_row
) {
    if (rows_per_batch == n_rows) return row * stride_row;
    return row / rows_per_batch * stride_batch + row % rows_per_batch * stride_row;
}

// Short rows share a block.
__host__ __device__ constexpr int threads_per_block(int threads_per_row) {
    return threads_per_row < 128 ? 128 : threads_per_row;
}
