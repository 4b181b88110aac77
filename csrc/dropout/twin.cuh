// The twin: a thread makes a block of random words for every four neighbours that it owns.
#pragma once

#include "common/elementwise.cuh"
#include "common/philox.cuh"

// Two accesses of 16 bytes to a tensor. Of the 20 instructions of an element of bfloat16,
// 10 are Philox's rounds: an H200 has time for 28 while it reads and writes 4 bytes.
template <typename T>
constexpr int DROPOUT_PER_THREAD = 2 * VEC_BYTES / sizeof(T);

template <typename T, int VEC_SIZE, bool STRIDED>
__global__ void __launch_bounds__(NUM_THREADS) dropout_kernel(
    T* __restrict__ out_ptr,      // (n_elements)
    const T* __restrict__ x_ptr,  // (n_elements / n_cols, n_cols)
    int64_t n_elements, int64_t n_cols, int64_t x_stride_row, int64_t x_stride_col,
    const int64_t* __restrict__ seed_ptr,  // (1), or null
    int64_t seed, int64_t threshold, float scale
) {
    // -- tile: a block owns neighbouring elements, a thread runs of four or more of them,
    // even where it has to read them one by one
    constexpr int RUN_SIZE = VEC_SIZE < 4 ? 4 : VEC_SIZE;
    const auto tile = own_tile<VEC_SIZE, STRIDED, DROPOUT_PER_THREAD<T>, RUN_SIZE>(
        n_elements, n_cols
    );

    // -- load: past the end nothing is read; and the seed, if it is not a number but in
    // memory, where each replay of a CUDA graph finds it anew
    if (seed_ptr) seed = *seed_ptr;
    const auto x = load_elements(x_ptr, tile, x_stride_row, x_stride_col);

    // -- mask: in float32; no word reaches the threshold of p = 1, 2^32
    const bool keeps_some = threshold <= UINT32_MAX;
    const uint32_t smallest = static_cast<uint32_t>(threshold);
    const auto word = random_words(tile, seed);
    const auto out = map(
        [&](float x, uint32_t word) {
            return keeps_some && word >= smallest ? x * scale : 0.0f;
        },
        to_float(x), word
    );

    // -- store: rounded once; past the end nothing is written
    store_elements(out_ptr, tile, out);
}
