// The twin: as glu_kernel, with two gradients of each element.
#pragma once

#include "common/activation.cuh"
#include "common/elementwise.cuh"

template <typename T, int VEC_SIZE, bool STRIDED, Activation ACTIVATION>
__global__ void __launch_bounds__(NUM_THREADS) glu_backward_kernel(
    T* __restrict__ value_grad_ptr,   // (n_elements / n_cols, n_cols)
    T* __restrict__ gate_grad_ptr,    // (n_elements / n_cols, n_cols)
    const T* __restrict__ grad_ptr,   // (n_elements / n_cols, n_cols)
    const T* __restrict__ value_ptr,  // (n_elements / n_cols, n_cols)
    const T* __restrict__ gate_ptr,   // (n_elements / n_cols, n_cols)
    int64_t n_elements, int64_t n_cols, int64_t out_stride_row, int64_t grad_stride_row,
    int64_t grad_stride_col, int64_t value_stride_row, int64_t value_stride_col,
    int64_t gate_stride_row, int64_t gate_stride_col
) {
    // -- tile: a block owns BLOCK_SIZE neighbouring elements
    const auto tile = own_tile<VEC_SIZE, STRIDED>(n_elements, n_cols);

    // -- load: past the end nothing is read
    const auto grad = load_elements(grad_ptr, tile, grad_stride_row, grad_stride_col);
    const auto value =
        load_elements(value_ptr, tile, value_stride_row, value_stride_col);
    const auto gate = load_elements(gate_ptr, tile, gate_stride_row, gate_stride_col);

    // -- compute: in float32. The derivative comes first: where it is 0, grad * value
    // may be inf
    const auto gate_grad = map(
        [](float grad, float value, float gate) {
            return activate_backward<ACTIVATION, T>(grad, gate) * value;
        },
        to_float(grad), to_float(value), to_float(gate)
    );
    const auto value_grad =
        map([](float grad, float gate) { return grad * activate<ACTIVATION, T>(gate); },
            to_float(grad), to_float(gate));

    // -- store: rounded once; past the end nothing is written
    store_elements<STRIDED>(value_grad_ptr, tile, value_grad, out_stride_row);
    store_elements<STRIDED>(gate_grad_ptr, tile, gate_grad, out_stride_row);
}
