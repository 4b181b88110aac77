// The twin: a thread turns the pairs of two vectors of 16 bytes.
//
// Interleaved, a vector of x holds half as many pairs as elements; else it holds one element
// of each of its pairs, and another vector the other.
#pragma once

#include "common/elementwise.cuh"

// COUNT vectors `distance` apart, of which the first n_valid exist.
template <int SIZE, int COUNT, typename T>
__device__ __forceinline__ Tile<float, SIZE, COUNT> load_vecs(
    const T* ptr, int distance, int n_valid, float fill = 0.0f
) {
    Tile<T, SIZE, COUNT> tile;
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        tile[i] = load<SIZE>(ptr + i * distance, i < n_valid, from_float<T>(fill));
    }
    return to_float(tile);
}

// The pairs of two vectors, turned: neighbours in a vector, or with the same place in both.
template <int VEC_SIZE, int SIZE, int COUNT>
__device__ __forceinline__ Tile<float, VEC_SIZE, 2> rotate(
    const Tile<float, VEC_SIZE, 2>& x, const Tile<float, SIZE, COUNT>& cos,
    const Tile<float, SIZE, COUNT>& sin
) {
    Tile<float, VEC_SIZE, 2> out;
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        #pragma unroll
        for (int j = 0; j < SIZE; ++j) {
            const auto first = [&](auto& tile) -> auto& {
                return COUNT == 2 ? tile[i][2 * j] : tile[0][j];
            };
            const auto second = [&](auto& tile) -> auto& {
                return COUNT == 2 ? tile[i][2 * j + 1] : tile[1][j];
            };
            first(out) = first(x) * cos[i][j] - second(x) * sin[i][j];
            second(out) = second(x) * cos[i][j] + first(x) * sin[i][j];
        }
    }
    return out;
}

// x and out may be the same memory: every element is read and written by one thread.
// That is why they are not __restrict__. Interleaved, the bound leaves registers for all
// loads: else the second vector of x is not read before the first one has been turned.
template <typename T, typename TableT, int VEC_SIZE, bool INTERLEAVED, bool CONJUGATE>
__global__ void __launch_bounds__(NUM_THREADS, INTERLEAVED ? 10 : 0) rotary_kernel(
    T* out_ptr,                              // (batch, seq_len, n_heads, head_dim)
    const T* x_ptr,                          // (batch, seq_len, n_heads, head_dim)
    const TableT* __restrict__ cos_ptr,      // (n_positions, n_pairs)
    const TableT* __restrict__ sin_ptr,      // (n_positions, n_pairs)
    const int64_t* __restrict__ offset_ptr,  // (batch), or null
    unsigned n_rows, unsigned seq_len, unsigned n_heads, int head_dim, int n_pairs,
    int64_t n_positions, int64_t out_stride_batch, int64_t out_stride_seq,
    int64_t out_stride_head, int64_t x_stride_batch, int64_t x_stride_seq,
    int64_t x_stride_head, int64_t cos_stride_position
) {
    constexpr bool TOGETHER = INTERLEAVED && VEC_SIZE > 1;  // pairs in one vector
    constexpr int PAIRS = TOGETHER ? VEC_SIZE / 2 : VEC_SIZE;
    constexpr int COUNT = TOGETHER ? 2 : 1;

    // -- tile: a block owns blockDim.y rows, which are neighbouring heads; the threads
    // of a row own neighbouring vectors of it
    const unsigned row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n_rows) return;
    const unsigned token = row / n_heads, head = row - token * n_heads;
    const unsigned batch = token / seq_len, step = token - batch * seq_len;
    out_ptr +=
        batch * out_stride_batch + step * out_stride_seq + head * out_stride_head;
    x_ptr += batch * x_stride_batch + step * x_stride_seq + head * x_stride_head;

    // A position that is not in the tables has no angle.
    const int64_t position = step + (offset_ptr ? offset_ptr[batch] : 0);
    const bool has_angle = 0 <= position && position < n_positions;
    cos_ptr += position * cos_stride_position;
    sin_ptr += position * cos_stride_position;

    // -- rotate: the pairs, in float32, rounded once
    const int step_pairs = blockDim.x * PAIRS;
    const int distance = TOGETHER ? 2 * step_pairs : INTERLEAVED ? 1 : n_pairs;
    #pragma unroll 1  // a row of usual length takes one step
    for (int pair = threadIdx.x * PAIRS; pair < n_pairs; pair += COUNT * step_pairs) {
        const int col = INTERLEAVED ? 2 * pair : pair;
        const int n_valid = TOGETHER && pair + step_pairs >= n_pairs ? 1 : 2;
        const int n_angles = has_angle ? n_valid : 0;
        const auto x = load_vecs<VEC_SIZE, 2>(x_ptr + col, distance, n_valid);
        const auto cos =
            load_vecs<PAIRS, COUNT>(cos_ptr + pair, step_pairs, n_angles, NAN);
        const auto sin =
            load_vecs<PAIRS, COUNT>(sin_ptr + pair, step_pairs, n_angles, NAN);
        const auto out =
            rotate(x, cos, map([](float sin) { return CONJUGATE ? -sin : sin; }, sin));
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (i >= n_valid) break;
            store(out_ptr + col + i * distance, from_float<T>(out[i]));
        }
    }

    // -- copy: the elements behind the pairs
    #pragma unroll 1
    for (int col = 2 * n_pairs + threadIdx.x * VEC_SIZE; col < head_dim;
         col += blockDim.x * VEC_SIZE) {
        store(out_ptr + col, load<VEC_SIZE>(x_ptr + col, true, T{}));
    }
}
