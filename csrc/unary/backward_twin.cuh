// The twin: as unary_kernel, of a gradient and x.
#pragma once

#include "common/activation.cuh"
#include "common/elementwise.cuh"

template <typename T, int VEC_SIZE, bool STRIDED, Activation ACTIVATION>
__global__ void __launch_bounds__(NUM_THREADS) unary_backward_kernel(
    T* __restrict__ out_ptr,         // (n_elements)
    const T* __restrict__ grad_ptr,  // (n_elements / n_cols, n_cols)
    const T* __restrict__ x_ptr,     // (n_elements / n_cols, n_cols)
    int64_t n_elements, int64_t n_cols, int64_t grad_stride_row,
    int64_t grad_stride_col, int64_t x_stride_row, int64_t x_stride_col
) {
    // -- tile: a block owns BLOCK_SIZE neighbouring elements
    const auto tile = own_tile<VEC_SIZE, STRIDED>(n_elements, n_cols);

    // -- load: past the end nothing is read
    const auto grad = load_elements(grad_ptr, tile, grad_stride_row, grad_stride_col);
    const auto x = load_elements(x_ptr, tile, x_stride_row, x_stride_col);

    // -- compute: in float32
    const auto out = map(
        [](float grad, float x) { return activate_backward<ACTIVATION, T>(grad, x); },
        to_float(grad), to_float(x)
    );

    // -- store: rounded once; past the end nothing is written
    store_elements(out_ptr, tile, out);
}
