// The first rung: a thread computes one element.
//
// Neighbouring threads read and write neighbouring elements, so that a warp's accesses are
// coalesced. A division finds the place of an element in a tensor with any strides.
#pragma once

#include "common/activation.cuh"
#include "common/elementwise.cuh"

template <typename T, Activation ACTIVATION>
__global__ void glu_first_kernel(
    T* out_ptr,          // (n_elements)
    const T* value_ptr,  // (n_elements / n_cols, n_cols)
    const T* gate_ptr,   // (n_elements / n_cols, n_cols)
    int64_t n_elements, int64_t n_cols, int64_t value_stride_row,
    int64_t value_stride_col, int64_t gate_stride_row, int64_t gate_stride_col
) {
    // -- tile: a block owns as many neighbouring elements as it has threads
    const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i >= n_elements) return;
    const int64_t row = i / n_cols, col = i % n_cols;

    // -- load: an element of each tensor
    const float value =
        to_float(value_ptr[row * value_stride_row + col * value_stride_col]);
    const float gate =
        to_float(gate_ptr[row * gate_stride_row + col * gate_stride_col]);

    // -- compute: in float32
    const float out = value * activate<ACTIVATION, T>(gate);

    // -- store: rounded once
    out_ptr[i] = from_float<T>(out);
}
