// The twin: each thread reads and writes several elements, by accesses of 16 bytes.
//
// All loads of a thread are on their way before the first addition waits for one.
#pragma once

#include "common/elementwise.cuh"

template <typename T, int VEC_SIZE, bool STRIDED>
__global__ void __launch_bounds__(NUM_THREADS) add_kernel(
    T* __restrict__ out_ptr,      // (n_elements)
    const T* __restrict__ x_ptr,  // (n_elements / n_cols, n_cols)
    const T* __restrict__ y_ptr,  // (n_elements / n_cols, n_cols)
    int64_t n_elements, int64_t n_cols, int64_t x_stride_row, int64_t x_stride_col,
    int64_t y_stride_row, int64_t y_stride_col
) {
    constexpr int VECS_PER_THREAD = ELEMENTS_PER_THREAD / VEC_SIZE;

    // -- tile: a block owns BLOCK_SIZE neighbouring elements
    const int64_t block_start = int64_t{blockIdx.x} * BLOCK_SIZE;

    // -- load: neighbouring threads read neighbouring vectors; past the end nothing is read
    Vec<T, VEC_SIZE> x[VECS_PER_THREAD], y[VECS_PER_THREAD];
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const int64_t element =
            block_start + (i * NUM_THREADS + threadIdx.x) * VEC_SIZE;
        const int64_t row = element / n_cols;  // of a tensor that is STRIDED
        x[i] = load_vec<VEC_SIZE, STRIDED>(
            x_ptr, element, row, n_elements, n_cols, x_stride_row, x_stride_col
        );
        y[i] = load_vec<VEC_SIZE, STRIDED>(
            y_ptr, element, row, n_elements, n_cols, y_stride_row, y_stride_col
        );
    }

    // -- compute: in float32
    Vec<float, VEC_SIZE> out[VECS_PER_THREAD];
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) {
            out[i][j] = to_float(x[i][j]) + to_float(y[i][j]);
        }
    }

    // -- store: rounded once; past the end nothing is written
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const int64_t element =
            block_start + (i * NUM_THREADS + threadIdx.x) * VEC_SIZE;
        store(out_ptr + element, from_float<T>(out[i]), n_elements - element);
    }
}
