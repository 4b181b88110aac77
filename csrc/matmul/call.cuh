// A call of matmul, and how it is cut up.
#pragma once

#include <cstdint>

#include "common/dtype.cuh"
#include "common/launch.cuh"

// How float32 is multiplied: as IEEE 754 has it, rounded to tf32, or as the sum of two tf32
// numbers.
enum class Precision : int { ieee, tf32, tf32x3 };

// What rung, tile and cut are chosen by.
struct Call {
    DType dtype;
    Precision precision;
    int64_t n_batches, M, N, K;
    bool fits_32_bits = false;     // rows, columns and tiles are counted in them
    bool has_tensor_maps = false;  // of a and b, or of aligned copies
    // Each row, or column, begins a line of the L2 if the first does.
    bool a_has_lines = false, b_has_lines = false;
    bool out_is_aligned = false;
    bool are_aligned = true;  // a and b, wherever they are read
    bool has_words = true;    // their rows begin and end at multiples of 4 bytes
    // Half of the elements that copies for the twin read and write.
    int64_t n_copied = 0;

    constexpr int64_t element_bytes() const { return element_bytes_of(dtype); }

    constexpr int64_t n_tiles(int block_m, int block_n) const {
        return n_batches * ceil_div(M, block_m) * ceil_div(N, block_n);
    }
    // The call whose result is the transpose of this one's.
    constexpr Call transposed() const {
        Call other = *this;
        other.M = N, other.N = M;
        other.a_has_lines = b_has_lines, other.b_has_lines = a_has_lines;
        return other;
    }
};

// How a call is cut up. Blocks share the steps of the first n_streamed tiles, 0 or as many that
// no block is left without a step. Where blocks form clusters, n_blocks counts these.
struct Cut {
    int tile;  // its place in its table
    int64_t n_blocks;
    int64_t n_streamed;
};
