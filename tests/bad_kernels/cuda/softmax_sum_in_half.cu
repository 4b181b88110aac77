// Accumulates in the 11 bits of the dtype of its input.
#include "common/launch.cuh"
#include "common/vec.cuh"

__global__ void softmax_sum_in_half_kernel(
    __half* out, const __half* x, int64_t n_cols, int64_t x_stride_row
) {
    x += blockIdx.x * x_stride_row;
    out += blockIdx.x * n_cols;
    float row_max = -INFINITY;
    for (int64_t i = 0; i < n_cols; ++i) row_max = fmaxf(row_max, to_float(x[i]));
    __half row_sum = from_float<__half>(0.0f);
    for (int64_t i = 0; i < n_cols; ++i) {
        const float numerator = expf(to_float(x[i]) - row_max);
        row_sum = from_float<__half>(to_float(row_sum) + numerator);
    }
    for (int64_t i = threadIdx.x; i < n_cols; i += blockDim.x) {
        const float numerator = expf(to_float(x[i]) - row_max);
        out[i] = from_float<__half>(numerator / to_float(row_sum));
    }
}

extern "C" cudaError_t softmax_sum_in_half(
    int64_t, __half* out, const __half* x, int64_t n_rows, int64_t n_cols,
    int64_t /* rows_per_batch */, int64_t /* x_stride_batch */, int64_t x_stride_row
) {
    const Launcher launch(nullptr);
    const Plan plan{softmax_sum_in_half_kernel, dim3(n_rows), dim3(32)};
    return launch(plan, out, x, n_cols, x_stride_row);
}
