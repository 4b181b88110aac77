// The first rung: the definition of a product, with one thread for each of its elements, on any
// architecture. It adds up products by the hundred, and then those sums: along a single chain
// of additions the rounding errors of thousands would pile up.
#pragma once

#include "common/launch.cuh"
#include "scaled_matmul/float8.cuh"

namespace first {
constexpr int BLOCK_M = 8;
constexpr int BLOCK_N = 32;
static_assert(BLOCK_M * BLOCK_N == FIRST_NUM_THREADS);
}  // namespace first

template <typename T, Float8 A_TYPE, Float8 B_TYPE>
__global__ void __launch_bounds__(FIRST_NUM_THREADS) scaled_matmul_first_kernel(
    T* __restrict__ out_ptr,                // (M, N)
    const uint8_t* __restrict__ a_ptr,      // (M, K)
    const uint8_t* __restrict__ b_ptr,      // (K, N)
    const float* __restrict__ scale_a_ptr,  // (M) or, with a stride of 0, (1)
    const float* __restrict__ scale_b_ptr,  // (N) or, likewise, (1)
    int64_t M, int64_t N, int64_t K, int64_t a_stride_row, int64_t b_stride_col,
    int64_t scale_a_stride, int64_t scale_b_stride
) {
    using namespace first;

    // -- tile: a block owns BLOCK_M x BLOCK_N elements, a thread one of them
    const int64_t n_tiles_n = (N + BLOCK_N - 1) / BLOCK_N;
    const int64_t tile = blockIdx.x;
    const int64_t row = tile / n_tiles_n * BLOCK_M + threadIdx.x / BLOCK_N;
    const int64_t col = tile % n_tiles_n * BLOCK_N + threadIdx.x % BLOCK_N;
    if (row >= M || col >= N) return;
    a_ptr += row * a_stride_row;
    b_ptr += col * b_stride_col;

    // -- compute: in float32
    float accumulator = 0.0f;
    for (int64_t start = 0; start < K; start += 100) {
        float part = 0.0f;
        for (int64_t k = start; k < min(start + 100, K); ++k) {
            part +=
                float8_to_float<A_TYPE>(a_ptr[k]) * float8_to_float<B_TYPE>(b_ptr[k]);
        }
        accumulator += part;
    }

    // -- store: after the scales, rounded once
    const float scale =
        scale_a_ptr[row * scale_a_stride] * scale_b_ptr[col * scale_b_stride];
    out_ptr[row * N + col] = from_float<T>(accumulator * scale);
}
