// The twin: a thread owns several elements, and accesses 16 bytes at a time.
#pragma once

#include "common/activation.cuh"
#include "common/elementwise.cuh"

template <typename T, int VEC_SIZE, bool STRIDED, Activation ACTIVATION>
__global__ void __launch_bounds__(NUM_THREADS) glu_kernel(
    T* __restrict__ out_ptr,          // (n_elements)
    const T* __restrict__ value_ptr,  // (n_elements / n_cols, n_cols)
    const T* __restrict__ gate_ptr,   // (n_elements / n_cols, n_cols)
    int64_t n_elements, int64_t n_cols, int64_t value_stride_row,
    int64_t value_stride_col, int64_t gate_stride_row, int64_t gate_stride_col
) {
    // -- tile: a block owns BLOCK_SIZE neighbouring elements
    const auto tile = own_tile<VEC_SIZE, STRIDED>(n_elements, n_cols);

    // -- load: past the end nothing is read
    const auto value =
        load_elements(value_ptr, tile, value_stride_row, value_stride_col);
    const auto gate = load_elements(gate_ptr, tile, gate_stride_row, gate_stride_col);

    // -- compute: in float32
    const auto out = map(
        [](float value, float gate) { return value * activate<ACTIVATION, T>(gate); },
        to_float(value), to_float(gate)
    );

    // -- store: rounded once; past the end nothing is written
    store_elements(out_ptr, tile, out);
}
