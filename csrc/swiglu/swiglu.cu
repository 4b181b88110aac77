// A linear unit gated by SiLU, and its backward.
//
//   swiglu:          out[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + exp(-x))
//   swiglu_backward: gate_grad[i] = grad[i] * up[i] * silu'(gate[i])
//                    up_grad[i] = grad[i] * silu(gate[i])
//
// Layout   out: contiguous. gate_grad, up_grad: rows of n_cols elements, out_stride_row
//          apart. grad, gate, up: read as (n_elements / n_cols, n_cols) with any two
//          strides. The halves of one tensor are two matrices like any others.
// Traffic  reads 2 and writes 1 element each, once: the ceiling is memory bandwidth at
//          2 reads to 1 write, and of the backward at 3 reads to 2 writes. It computes
//          the gate again, which costs less than reading it would.
// Limits   computes in float32, so float16 and bfloat16 are rounded once.
// Mirror   triton_kernels/swiglu/swiglu.py
// Source   Shazeer 2020, arXiv:2002.05202

#include "glu/backward_first.cuh"
#include "glu/backward_twin.cuh"
#include "glu/first.cuh"
#include "glu/twin.cuh"

cudaError_t swiglu(
    const Launcher& launch, DType dtype, void* out, const void* gate, const void* up,
    int64_t n_elements, int64_t n_cols, int64_t gate_stride_row,
    int64_t gate_stride_col, int64_t up_stride_row, int64_t up_stride_col, int rung
) {
    return dispatch_elements(
        dtype, n_elements, n_cols,
        {{out},
         {gate, gate_stride_row, gate_stride_col},
         {up, up_stride_row, up_stride_col}},
        [&]<typename T, int VEC_SIZE, bool STRIDED> {
            const auto first = glu_first_kernel<T, Activation::silu>;
            const auto twin = glu_kernel<T, VEC_SIZE, STRIDED, Activation::silu>;
            // To the kernels `up` is the value, which comes before the gate.
            return launch(
                plan_elements(rung, first, twin, n_elements), out, up, gate, n_elements,
                n_cols, up_stride_row, up_stride_col, gate_stride_row, gate_stride_col
            );
        }
    );
}

cudaError_t swiglu_backward(
    const Launcher& launch, DType dtype, void* gate_grad, void* up_grad,
    const void* grad, const void* gate, const void* up, int64_t n_elements,
    int64_t n_cols, int64_t out_stride_row, int64_t grad_stride_row,
    int64_t grad_stride_col, int64_t gate_stride_row, int64_t gate_stride_col,
    int64_t up_stride_row, int64_t up_stride_col, int rung
) {
    return dispatch_elements(
        dtype, n_elements, n_cols,
        {{gate_grad, out_stride_row},
         {up_grad, out_stride_row},
         {grad, grad_stride_row, grad_stride_col},
         {gate, gate_stride_row, gate_stride_col},
         {up, up_stride_row, up_stride_col}},
        [&]<typename T, int VEC_SIZE, bool STRIDED> {
            const auto first = glu_backward_first_kernel<T, Activation::silu>;
            const auto twin =
                glu_backward_kernel<T, VEC_SIZE, STRIDED, Activation::silu>;
            return launch(
                plan_elements(rung, first, twin, n_elements), up_grad, gate_grad, grad,
                up, gate, n_elements, n_cols, out_stride_row, grad_stride_row,
                grad_stride_col, up_stride_row, up_stride_col, gate_stride_row,
                gate_stride_col
            );
        }
    );
}
