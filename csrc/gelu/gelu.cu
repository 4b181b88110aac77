// The Gaussian error linear unit, exact or by its tanh approximation, and its backward.
//
//   gelu:          out[i] = x[i] * Phi(x[i])
//   gelu_backward: out[i] = grad[i] * (Phi(x[i]) + x[i] * phi(x[i]))
//   Phi and phi: distribution function and density of the standard normal
//
// Layout   out: contiguous. grad, x: read as (n_elements / n_cols, n_cols) with any two
//          strides.
// Traffic  reads and writes every element once: the ceiling is the bandwidth of a copy,
//          and of the backward that of 2 reads to 1 write.
// Limits   computes in float32, so float16 and bfloat16 are rounded once.
// Mirror   triton_kernels/gelu/gelu.py
// Source   Hendrycks & Gimpel 2016, arXiv:1606.08415

#include "unary/backward_first.cuh"
#include "unary/backward_twin.cuh"
#include "unary/first.cuh"
#include "unary/twin.cuh"

cudaError_t gelu(
    const Launcher& launch, DType dtype, void* out, const void* x, int64_t n_elements,
    int64_t n_cols, int64_t x_stride_row, int64_t x_stride_col, bool approximate_tanh,
    int rung
) {
    return dispatch_elements(
        dtype, n_elements, n_cols, {{out}, {x, x_stride_row, x_stride_col}},
        [&]<typename T, int VEC_SIZE, bool STRIDED> {
            const auto first = approximate_tanh
                                   ? unary_first_kernel<T, Activation::gelu_tanh>
                                   : unary_first_kernel<T, Activation::gelu>;
            const auto twin =
                approximate_tanh
                    ? unary_kernel<T, VEC_SIZE, STRIDED, Activation::gelu_tanh>
                    : unary_kernel<T, VEC_SIZE, STRIDED, Activation::gelu>;
            return launch(
                plan_elements(rung, first, twin, n_elements), out, x, n_elements,
                n_cols, x_stride_row, x_stride_col
            );
        }
    );
}

cudaError_t gelu_backward(
    const Launcher& launch, DType dtype, void* out, const void* grad, const void* x,
    int64_t n_elements, int64_t n_cols, int64_t grad_stride_row,
    int64_t grad_stride_col, int64_t x_stride_row, int64_t x_stride_col,
    bool approximate_tanh, int rung
) {
    return dispatch_elements(
        dtype, n_elements, n_cols,
        {{out},
         {grad, grad_stride_row, grad_stride_col},
         {x, x_stride_row, x_stride_col}},
        [&]<typename T, int VEC_SIZE, bool STRIDED> {
            const auto first =
                approximate_tanh ? unary_backward_first_kernel<T, Activation::gelu_tanh>
                                 : unary_backward_first_kernel<T, Activation::gelu>;
            const auto twin =
                approximate_tanh
                    ? unary_backward_kernel<T, VEC_SIZE, STRIDED, Activation::gelu_tanh>
                    : unary_backward_kernel<T, VEC_SIZE, STRIDED, Activation::gelu>;
            return launch(
                plan_elements(rung, first, twin, n_elements), out, grad, x, n_elements,
                n_cols, grad_stride_row, grad_stride_col, x_stride_row, x_stride_col
            );
        }
    );
}
