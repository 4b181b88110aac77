// The twin: as swiglu_kernel, with two gradients of each element.
#pragma once

#include "common/elementwise.cuh"
#include "common/math.cuh"

template <typename T, int VEC_SIZE, bool STRIDED>
__global__ void __launch_bounds__(NUM_THREADS) swiglu_backward_kernel(
    T* __restrict__ gate_grad_ptr,   // (n_elements / n_cols, n_cols)
    T* __restrict__ up_grad_ptr,     // (n_elements / n_cols, n_cols)
    const T* __restrict__ grad_ptr,  // (n_elements / n_cols, n_cols)
    const T* __restrict__ gate_ptr,  // (n_elements / n_cols, n_cols)
    const T* __restrict__ up_ptr,    // (n_elements / n_cols, n_cols)
    int64_t n_elements, int64_t n_cols, int64_t out_stride_row, int64_t grad_stride_row,
    int64_t grad_stride_col, int64_t gate_stride_row, int64_t gate_stride_col,
    int64_t up_stride_row, int64_t up_stride_col
) {
    // -- tile: a block owns BLOCK_SIZE neighbouring elements
    const auto tile = own_tile<VEC_SIZE, STRIDED>(n_elements, n_cols);

    // -- load: past the end nothing is read
    const auto grad = load_elements(grad_ptr, tile, grad_stride_row, grad_stride_col);
    const auto gate = load_elements(gate_ptr, tile, gate_stride_row, gate_stride_col);
    const auto up = load_elements(up_ptr, tile, up_stride_row, up_stride_col);

    // -- compute: in float32. The derivative comes first: where it is 0, grad * up
    // may be inf
    const auto gate_grad =
        map([](float grad, float gate,
               float up) { return grad * silu_derivative<T>(gate) * up; },
            to_float(grad), to_float(gate), to_float(up));
    const auto up_grad =
        map([](float grad, float gate) { return grad * silu<T>(gate); }, to_float(grad),
            to_float(gate));

    // -- store: rounded once; past the end nothing is written
    store_elements<STRIDED>(gate_grad_ptr, tile, gate_grad, out_stride_row);
    store_elements<STRIDED>(up_grad_ptr, tile, up_grad, out_stride_row);
}
