// The first rung: a thread computes the gradient of one element.
#pragma once

#include "common/activation.cuh"
#include "common/elementwise.cuh"

template <typename T, Activation ACTIVATION>
__global__ void unary_backward_first_kernel(
    T* out_ptr,         // (n_elements)
    const T* grad_ptr,  // (n_elements / n_cols, n_cols)
    const T* x_ptr,     // (n_elements / n_cols, n_cols)
    int64_t n_elements, int64_t n_cols, int64_t grad_stride_row,
    int64_t grad_stride_col, int64_t x_stride_row, int64_t x_stride_col
) {
    // -- tile: a block owns as many neighbouring elements as it has threads
    const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i >= n_elements) return;
    const int64_t row = i / n_cols, col = i % n_cols;

    // -- load: an element of each tensor
    const float grad =
        to_float(grad_ptr[row * grad_stride_row + col * grad_stride_col]);
    const float x = to_float(x_ptr[row * x_stride_row + col * x_stride_col]);

    // -- compute: in float32
    const float out = activate_backward<ACTIVATION, T>(grad, x);

    // -- store: rounded once
    out_ptr[i] = from_float<T>(out);
}
