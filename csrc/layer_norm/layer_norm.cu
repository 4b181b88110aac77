// Layer normalisation of every row of a matrix, and its backward.
//
//   layer_norm:          out[row, :] = x_hat[row, :] * weight + bias,
//                        x_hat[row, :] = (x[row, :] - mean[row]) * rstd[row],
//                        rstd[row] = 1 / sqrt(variance(x[row, :]) + eps)
//   layer_norm_backward: grad_x[row, :] = rstd[row] * (g - m - x_hat[row, :] * p),
//                        g = grad[row, :] * weight, m = mean(g),
//                        p = mean(g * x_hat[row, :]); over all rows
//                        grad_weight = sum of grad[row, :] * x_hat[row, :],
//                        grad_bias = sum of grad[row, :]
//
// Layout   out, grad_x: (n_rows, n_cols), contiguous. x, grad: columns contiguous; row r
//          of x begins at
//          (r / rows_per_batch) * x_stride_batch + (r % rows_per_batch) * x_stride_row.
//          mean, rstd: float32, one for each row. weight, bias: contiguous, or null for
//          ones and zeros.
// Traffic  reads and writes every element once. Rows of up to 16384 columns, 32768 of
//          float32, stay in registers; longer ones are read a second time, out of the L1
//          cache. In the backward they stay in the registers of a block (4096 columns,
//          8192 of two bytes) or in the shared memory of a cluster of up to eight (65536;
//          not single elements of two bytes); longer ones come from memory twice.
// Limits   accumulates in float32. The variance is that of differences from a mean, of
//          which the rounding is taken back; a mean far from zero costs it no digits.
//          Gradients of weights are added in an order that depends on the shape, the
//          dtype and the GPU.
// Mirror   triton_kernels/layer_norm/layer_norm.py shares longer rows among programs, in
//          norm_backward_shared_kernel: Triton has no clusters, so their sums go through
//          global memory
// Source   Ba, Kiros & Hinton 2016, arXiv:1607.06450; Chan, Golub & LeVeque 1983,
//          "Algorithms for computing the sample variance" (the corrected two-pass one)

#include "common/launch.cuh"
#include "layer_norm/backward_first.cuh"
#include "layer_norm/first.cuh"
#include "norm/backward_tables.cuh"
#include "norm/tables.cuh"

cudaError_t layer_norm(
    const Launcher& launch, DType dtype, void* out, void* mean, void* rstd,
    const void* x, const void* weight, const void* bias, int64_t n_rows, int64_t n_cols,
    int64_t rows_per_batch, int64_t x_stride_batch, int64_t x_stride_row, float eps,
    int rung
) {
    const auto start = [&](const auto& plan) {
        return launch(
            plan, out, mean, rstd, x, weight, bias, n_rows, n_cols, rows_per_batch,
            x_stride_batch, x_stride_row, eps
        );
    };
    const bool vectors = have_vectors(
        dtype,
        {{out, n_cols}, {x, x_stride_row, x_stride_batch}, {weight, 0}, {bias, 0}}
    );
    return dispatch_vectors<cudaError_t>(dtype, vectors, [&]<typename T, int VEC_SIZE> {
        if (Rung{rung} == Rung::first) {
            return start(plan_first(layer_norm_first_kernel<T>, n_rows));
        }
        return launch_norm<T, VEC_SIZE, true>(
            launch.device(), n_rows, n_cols, rung, start
        );
    });
}

cudaError_t layer_norm_backward(
    const Launcher& launch, DType dtype, void* grad_x, void* grad_weight,
    void* grad_bias, void* partials, void* row_means, const void* grad, const void* x,
    const void* mean, const void* rstd, const void* weight, int64_t n_rows,
    int64_t n_cols, int64_t n_partials, int64_t rows_per_batch,
    int64_t grad_stride_batch, int64_t grad_stride_row, int64_t x_stride_batch,
    int64_t x_stride_row, int rung
) {
    const auto start_first = [&]<typename T>(const auto& start) {
        const auto plan = plan_first(layer_norm_backward_first_kernel<T>, n_rows);
        return start(plan, grad_x, grad, x, mean, rstd, weight);
    };
    return launch_norm_backward<true>(
        launch, dtype, grad_x, grad_weight, grad_bias, partials, row_means, grad, x,
        mean, rstd, weight, n_rows, n_cols, n_partials, rows_per_batch,
        grad_stride_batch, grad_stride_row, x_stride_batch, x_stride_row, rung,
        start_first
    );
}
