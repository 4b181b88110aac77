// The first rung: a thread computes both gradients of one element.
#pragma once

#include "common/activation.cuh"
#include "common/elementwise.cuh"

template <typename T, Activation ACTIVATION>
__global__ void glu_backward_first_kernel(
    T* value_grad_ptr,   // (n_elements / n_cols, n_cols)
    T* gate_grad_ptr,    // (n_elements / n_cols, n_cols)
    const T* grad_ptr,   // (n_elements / n_cols, n_cols)
    const T* value_ptr,  // (n_elements / n_cols, n_cols)
    const T* gate_ptr,   // (n_elements / n_cols, n_cols)
    int64_t n_elements, int64_t n_cols, int64_t out_stride_row, int64_t grad_stride_row,
    int64_t grad_stride_col, int64_t value_stride_row, int64_t value_stride_col,
    int64_t gate_stride_row, int64_t gate_stride_col
) {
    // -- tile: a block owns as many neighbouring elements as it has threads
    const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i >= n_elements) return;
    const int64_t row = i / n_cols, col = i % n_cols;

    // -- load: an element of each tensor
    const float grad =
        to_float(grad_ptr[row * grad_stride_row + col * grad_stride_col]);
    const float value =
        to_float(value_ptr[row * value_stride_row + col * value_stride_col]);
    const float gate =
        to_float(gate_ptr[row * gate_stride_row + col * gate_stride_col]);

    // -- compute: in float32. The derivative comes first: where it is 0, grad * value
    // may be inf
    const float gate_grad = activate_backward<ACTIVATION, T>(grad, gate) * value;
    const float value_grad = grad * activate<ACTIVATION, T>(gate);

    // -- store: rounded once
    value_grad_ptr[row * out_stride_row + col] = from_float<T>(value_grad);
    gate_grad_ptr[row * out_stride_row + col] = from_float<T>(gate_grad);
}
