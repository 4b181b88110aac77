// The twin: a thread owns several elements, and accesses 16 bytes at a time.
#pragma once

#include "common/activation.cuh"
#include "common/elementwise.cuh"

template <typename T, int VEC_SIZE, bool STRIDED, Activation ACTIVATION>
__global__ void __launch_bounds__(NUM_THREADS) unary_kernel(
    T* __restrict__ out_ptr,      // (n_elements)
    const T* __restrict__ x_ptr,  // (n_elements / n_cols, n_cols)
    int64_t n_elements, int64_t n_cols, int64_t x_stride_row, int64_t x_stride_col
) {
    // -- tile: a block owns BLOCK_SIZE neighbouring elements
    const auto tile = own_tile<VEC_SIZE, STRIDED>(n_elements, n_cols);

    // -- load: past the end nothing is read
    const auto x = load_elements(x_ptr, tile, x_stride_row, x_stride_col);

    // -- compute: in float32
    const auto out =
        map([](float x) { return activate<ACTIVATION, T>(x); }, to_float(x));

    // -- store: rounded once; past the end nothing is written
    store_elements(out_ptr, tile, out);
}
