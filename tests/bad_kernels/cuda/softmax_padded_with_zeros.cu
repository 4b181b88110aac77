// Fills the columns past the end with 0, each of which adds to the sum.
#include "common/launch.cuh"
#include "common/math.cuh"
#include "common/reduce.cuh"

__global__ void softmax_padded_with_zeros_kernel(
    float* out, const float* x, int64_t n_cols, int64_t x_stride_row
) {
    const float* const row = x + blockIdx.x * x_stride_row;
    const int col = threadIdx.x;
    const float value = col < n_cols ? row[col] : 0.0f;
    const float row_max = block_reduce<64>(value, Max{});
    const float numerator = expf(value - row_max);
    const float row_sum = block_reduce<64>(numerator, Sum{});
    if (col < n_cols) out[blockIdx.x * n_cols + col] = numerator / row_sum;
}

extern "C" cudaError_t softmax_padded_with_zeros(
    int64_t, float* out, const float* x, int64_t n_rows, int64_t n_cols,
    int64_t /* rows_per_batch */, int64_t /* x_stride_batch */, int64_t x_stride_row
) {
    const Launcher launch(nullptr);
    const Plan plan{softmax_padded_with_zeros_kernel, dim3(n_rows), dim3(64)};
    return launch(plan, out, x, n_cols, x_stride_row);
}
