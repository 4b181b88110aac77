// The first rung: a thread makes the word of an element, and keeps the element or not.
//
// A block of Philox has four words, of which each thread uses one: neighbours compute the
// same block four times.
#pragma once

#include "common/elementwise.cuh"
#include "common/philox.cuh"

template <typename T>
__global__ void dropout_first_kernel(
    T* out_ptr,      // (n_elements)
    const T* x_ptr,  // (n_elements / n_cols, n_cols)
    int64_t n_elements, int64_t n_cols, int64_t x_stride_row, int64_t x_stride_col,
    const int64_t* seed_ptr,  // (1), or null
    int64_t seed, int64_t threshold, float scale
) {
    // -- tile: a block owns as many neighbouring elements as it has threads
    const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i >= n_elements) return;
    const int64_t row = i / n_cols, col = i % n_cols;

    // -- load: an element; and the seed, if it is not a number but in memory, where each
    // replay of a CUDA graph finds it anew
    if (seed_ptr) seed = *seed_ptr;
    const float x = to_float(x_ptr[row * x_stride_row + col * x_stride_col]);

    // -- mask: in float32; no word reaches the threshold of p = 1, 2^32
    const bool keep = random_word(i, seed) >= threshold;
    const float out = keep ? x * scale : 0.0f;

    // -- store: rounded once
    out_ptr[i] = from_float<T>(out);
}
