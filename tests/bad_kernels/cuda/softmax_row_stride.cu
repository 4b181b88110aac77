// Writes the rows as far apart as it reads them.
#include "common/launch.cuh"
#include "common/math.cuh"
#include "common/reduce.cuh"

__global__ void softmax_row_stride_kernel(
    float* out, const float* x, int64_t n_cols, int64_t x_stride_row
) {
    const int64_t row_start = blockIdx.x * x_stride_row;
    const int col = threadIdx.x;
    const float value = col < n_cols ? x[row_start + col] : -INFINITY;
    const float row_max = block_reduce<128>(value, Max{});
    const float numerator = expf(value - row_max);
    const float row_sum = block_reduce<128>(numerator, Sum{});
    if (col < n_cols) out[row_start + col] = numerator / row_sum;
}

extern "C" cudaError_t softmax_row_stride(
    int64_t, float* out, const float* x, int64_t n_rows, int64_t n_cols,
    int64_t /* rows_per_batch */, int64_t /* x_stride_batch */, int64_t x_stride_row
) {
    const Launcher launch(nullptr);
    const Plan plan{softmax_row_stride_kernel, dim3(n_rows), dim3(128)};
    return launch(plan, out, x, n_cols, x_stride_row);
}
