// A linear unit gated by GELU, exact or by its tanh approximation, and its backward.
//
//   geglu:          out[i] = value[i] * gelu(gate[i])
//   geglu_backward: value_grad[i] = grad[i] * gelu(gate[i])
//                   gate_grad[i] = grad[i] * value[i] * gelu'(gate[i])
//
// Layout   out: contiguous. value_grad, gate_grad: rows of n_cols elements,
//          out_stride_row apart. grad, value, gate: read as (n_elements / n_cols,
//          n_cols) with any two strides. The halves of one tensor are two matrices like
//          any others.
// Traffic  reads 2 and writes 1 element each, once: the ceiling is memory bandwidth at
//          2 reads to 1 write, and of the backward at 3 reads to 2 writes. It computes
//          the gate again, which costs less than reading it would.
// Limits   computes in float32, so float16 and bfloat16 are rounded once.
// Mirror   triton_kernels/geglu/geglu.py
// Source   Shazeer 2020, arXiv:2002.05202

#include "glu/backward_first.cuh"
#include "glu/backward_twin.cuh"
#include "glu/first.cuh"
#include "glu/twin.cuh"

cudaError_t geglu(
    const Launcher& launch, DType dtype, void* out, const void* value, const void* gate,
    int64_t n_elements, int64_t n_cols, int64_t value_stride_row,
    int64_t value_stride_col, int64_t gate_stride_row, int64_t gate_stride_col,
    bool approximate_tanh, int rung
) {
    return dispatch_elements(
        dtype, n_elements, n_cols,
        {{out},
         {value, value_stride_row, value_stride_col},
         {gate, gate_stride_row, gate_stride_col}},
        [&]<typename T, int VEC_SIZE, bool STRIDED> {
            const auto first = approximate_tanh
                                   ? glu_first_kernel<T, Activation::gelu_tanh>
                                   : glu_first_kernel<T, Activation::gelu>;
            const auto twin =
                approximate_tanh
                    ? glu_kernel<T, VEC_SIZE, STRIDED, Activation::gelu_tanh>
                    : glu_kernel<T, VEC_SIZE, STRIDED, Activation::gelu>;
            return launch(
                plan_elements(rung, first, twin, n_elements), out, value, gate,
                n_elements, n_cols, value_stride_row, value_stride_col, gate_stride_row,
                gate_stride_col
            );
        }
    );
}

cudaError_t geglu_backward(
    const Launcher& launch, DType dtype, void* value_grad, void* gate_grad,
    const void* grad, const void* value, const void* gate, int64_t n_elements,
    int64_t n_cols, int64_t out_stride_row, int64_t grad_stride_row,
    int64_t grad_stride_col, int64_t value_stride_row, int64_t value_stride_col,
    int64_t gate_stride_row, int64_t gate_stride_col, bool approximate_tanh, int rung
) {
    return dispatch_elements(
        dtype, n_elements, n_cols,
        {{value_grad, out_stride_row},
         {gate_grad, out_stride_row},
         {grad, grad_stride_row, grad_stride_col},
         {value, value_stride_row, value_stride_col},
         {gate, gate_stride_row, gate_stride_col}},
        [&]<typename T, int VEC_SIZE, bool STRIDED> {
            const auto first = approximate_tanh
                                   ? glu_backward_first_kernel<T, Activation::gelu_tanh>
                                   : glu_backward_first_kernel<T, Activation::gelu>;
            const auto twin =
                approximate_tanh
                    ? glu_backward_kernel<T, VEC_SIZE, STRIDED, Activation::gelu_tanh>
                    : glu_backward_kernel<T, VEC_SIZE, STRIDED, Activation::gelu>;
            return launch(
                plan_elements(rung, first, twin, n_elements), value_grad, gate_grad,
                grad, value, gate, n_elements, n_cols, out_stride_row, grad_stride_row,
                grad_stride_col, value_stride_row, value_stride_col, gate_stride_row,
                gate_stride_col
            );
        }
    );
}
