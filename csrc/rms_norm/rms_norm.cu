// Root mean square normalisation of every row of a matrix, and its backward.
//
//   rms_norm:          out[row, :] = x_hat[row, :] * weight,
//                      x_hat[row, :] = x[row, :] * rstd[row],
//                      rstd[row] = 1 / sqrt(mean(x[row, :]^2) + eps)
//   rms_norm_backward: grad_x[row, :] = rstd[row] * (g - x_hat[row, :] * m),
//                      g = grad[row, :] * weight, m = mean(g * x_hat[row, :]);
//                      grad_weight = sum of grad[row, :] * x_hat[row, :] over all rows
//
// Layout   out, grad_x: (n_rows, n_cols), contiguous. x, grad: columns contiguous; row r
//          of x begins at
//          (r / rows_per_batch) * x_stride_batch + (r % rows_per_batch) * x_stride_row.
//          rstd: float32, one for each row. weight: contiguous, or null for ones.
// Traffic  reads and writes every element once. Rows of up to 16384 columns, 51200 of
//          float32, stay in registers; longer ones are read a second time, out of the L1
//          cache. In the backward they stay in the registers of a block (4096 columns,
//          8192 of two bytes) or in the shared memory of a cluster of up to eight (65536;
//          not single elements of two bytes); longer ones come from memory twice.
// Limits   accumulates in float32. Gradients of weights are added in an order that
//          depends on the shape, the dtype and the GPU.
// Mirror   triton_kernels/rms_norm/rms_norm.py shares longer rows among programs, in
//          norm_backward_shared_kernel: Triton has no clusters, so their sums go through
//          global memory
// Source   Zhang & Sennrich 2019, arXiv:1910.07467

#include "common/launch.cuh"
#include "norm/backward_tables.cuh"
#include "norm/tables.cuh"
#include "rms_norm/backward_first.cuh"
#include "rms_norm/first.cuh"

cudaError_t rms_norm(
    const Launcher& launch, DType dtype, void* out, void* rstd, const void* x,
    const void* weight, int64_t n_rows, int64_t n_cols, int64_t rows_per_batch,
    int64_t x_stride_batch, int64_t x_stride_row, float eps, int rung
) {
    const auto start = [&](const auto& plan, auto... tensors) {
        return launch(
            plan, tensors..., n_rows, n_cols, rows_per_batch, x_stride_batch,
            x_stride_row, eps
        );
    };
    const bool vectors = have_vectors(
        dtype, {{out, n_cols}, {x, x_stride_row, x_stride_batch}, {weight, 0}}
    );
    return dispatch_vectors<cudaError_t>(dtype, vectors, [&]<typename T, int VEC_SIZE> {
        if (Rung{rung} == Rung::first) {
            const auto plan = plan_first(rms_norm_first_kernel<T>, n_rows);
            return start(plan, out, rstd, x, weight);
        }
        const auto start_norm = [&](const auto& plan) {
            return start(plan, out, nullptr, rstd, x, weight, nullptr);
        };
        return launch_norm<T, VEC_SIZE, false>(
            launch.device(), n_rows, n_cols, rung, start_norm
        );
    });
}

cudaError_t rms_norm_backward(
    const Launcher& launch, DType dtype, void* grad_x, void* grad_weight,
    void* partials, void* row_means, const void* grad, const void* x, const void* rstd,
    const void* weight, int64_t n_rows, int64_t n_cols, int64_t n_partials,
    int64_t rows_per_batch, int64_t grad_stride_batch, int64_t grad_stride_row,
    int64_t x_stride_batch, int64_t x_stride_row, int rung
) {
    const auto start_first = [&]<typename T>(const auto& start) {
        const auto plan = plan_first(rms_norm_backward_first_kernel<T>, n_rows);
        return start(plan, grad_x, grad, x, rstd, weight);
    };
    return launch_norm_backward<false>(
        launch, dtype, grad_x, grad_weight, nullptr, partials, row_means, grad, x,
        nullptr, rstd, weight, n_rows, n_cols, n_partials, rows_per_batch,
        grad_stride_batch, grad_stride_row, x_stride_batch, x_stride_row, rung,
        start_first
    );
}
