// An activation of every element, by name, and its backward.
//
//   activation:          out[i] = f(x[i])
//   activation_backward: out[i] = grad[i] * f'(x[i])
//   f: relu, leaky_relu (slope 0.01), gelu, gelu_tanh, silu
//
// Layout   out: contiguous. grad, x: read as (n_elements / n_cols, n_cols) with any two
//          strides.
// Traffic  reads and writes every element once: the ceiling is the bandwidth of a copy,
//          and of the backward that of 2 reads to 1 write.
// Limits   computes in float32, so float16 and bfloat16 are rounded once.
// Mirror   triton_kernels/activation/activation.py
// Source   Maas et al. 2013, leaky ReLU; Hendrycks & Gimpel 2016, arXiv:1606.08415, GELU
//          and SiLU

#include "unary/backward_first.cuh"
#include "unary/backward_twin.cuh"
#include "unary/first.cuh"
#include "unary/twin.cuh"

cudaError_t activation(
    const Launcher& launch, DType dtype, void* out, const void* x, int64_t n_elements,
    int64_t n_cols, int64_t x_stride_row, int64_t x_stride_col, int activation, int rung
) {
    return dispatch_elements(
        dtype, n_elements, n_cols, {{out}, {x, x_stride_row, x_stride_col}},
        [&]<typename T, int VEC_SIZE, bool STRIDED> {
            return dispatch_activation(
                Activation{activation}, [&]<Activation ACTIVATION> {
                    const auto first = unary_first_kernel<T, ACTIVATION>;
                    const auto twin = unary_kernel<T, VEC_SIZE, STRIDED, ACTIVATION>;
                    return launch(
                        plan_elements(rung, first, twin, n_elements), out, x,
                        n_elements, n_cols, x_stride_row, x_stride_col
                    );
                }
            );
        }
    );
}

cudaError_t activation_backward(
    const Launcher& launch, DType dtype, void* out, const void* grad, const void* x,
    int64_t n_elements, int64_t n_cols, int64_t grad_stride_row,
    int64_t grad_stride_col, int64_t x_stride_row, int64_t x_stride_col, int activation,
    int rung
) {
    return dispatch_elements(
        dtype, n_elements, n_cols,
        {{out},
         {grad, grad_stride_row, grad_stride_col},
         {x, x_stride_row, x_stride_col}},
        [&]<typename T, int VEC_SIZE, bool STRIDED> {
            return dispatch_activation(
                Activation{activation}, [&]<Activation ACTIVATION> {
                    const auto first = unary_backward_first_kernel<T, ACTIVATION>;
                    const auto twin =
                        unary_backward_kernel<T, VEC_SIZE, STRIDED, ACTIVATION>;
                    return launch(
                        plan_elements(rung, first, twin, n_elements), out, grad, x,
                        n_elements, n_cols, grad_stride_row, grad_stride_col,
                        x_stride_row, x_stride_col
                    );
                }
            );
        }
    );
}
