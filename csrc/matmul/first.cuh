// The first rung: the definition of a product, with one thread for each of its elements.
// It adds up products by the hundred, and then those sums: along a single chain of additions
// the rounding errors of thousands would pile up.
//
// Each thread reads a row of a and a column of b: 2 K elements for K multiplications. The
// caches save most of them, as neighbours read the same element of a and neighbouring ones
// of b.
#pragma once

#include "common/epilogue.cuh"
#include "common/launch.cuh"
#include "common/vec.cuh"

namespace first {
constexpr int BLOCK_M = 8;
constexpr int BLOCK_N = 32;
static_assert(BLOCK_M * BLOCK_N == FIRST_NUM_THREADS);
}  // namespace first

template <typename T, Activation ACTIVATION>
__global__ void __launch_bounds__(FIRST_NUM_THREADS) matmul_first_kernel(
    T* __restrict__ out_ptr,         // (n_batches, M, N)
    const T* __restrict__ a_ptr,     // (n_batches, M, K)
    const T* __restrict__ b_ptr,     // (n_batches, K, N)
    const T* __restrict__ bias_ptr,  // (N), or null
    int64_t M, int64_t N, int64_t K, int64_t a_stride_batch, int64_t a_stride_row,
    int64_t a_stride_col, int64_t b_stride_batch, int64_t b_stride_row,
    int64_t b_stride_col
) {
    using namespace first;

    // -- tile: a block owns BLOCK_M x BLOCK_N elements, a thread one of them
    const int64_t n_tiles_m = (M + BLOCK_M - 1) / BLOCK_M;
    const int64_t n_tiles_n = (N + BLOCK_N - 1) / BLOCK_N;
    const int64_t batch = blockIdx.x / (n_tiles_m * n_tiles_n);
    const int64_t tile = blockIdx.x % (n_tiles_m * n_tiles_n);
    const int64_t row = tile / n_tiles_n * BLOCK_M + threadIdx.x / BLOCK_N;
    const int64_t col = tile % n_tiles_n * BLOCK_N + threadIdx.x % BLOCK_N;
    if (row >= M || col >= N) return;
    a_ptr += batch * a_stride_batch + row * a_stride_row;
    b_ptr += batch * b_stride_batch + col * b_stride_col;

    // -- compute: in float32
    float accumulator = 0.0f;
    for (int64_t start = 0; start < K; start += 100) {
        float part = 0.0f;
        for (int64_t k = start; k < min(start + 100, K); ++k) {
            part +=
                to_float(a_ptr[k * a_stride_col]) * to_float(b_ptr[k * b_stride_row]);
        }
        accumulator += part;
    }

    // -- store: after the epilogue, rounded once
    const float scale = argument_scale<T>(ACTIVATION);
    const float bias = bias_ptr ? scale * to_float(bias_ptr[col]) : 0.0f;
    out_ptr[(batch * M + row) * N + col] =
        from_float<T>(epilogue<ACTIVATION, T>(accumulator, bias));
}
