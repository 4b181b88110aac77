// The first launch of a backward: for every row, what its scores' gradients have in common.
#pragma once

#include "common/launch.cuh"
#include "common/reduce.cuh"
#include "common/vec.cuh"

constexpr int DELTA_NUM_THREADS = 256;
constexpr int DELTA_LANES =
    8;  // of a row: a head_dim of 64 in 16 bits is a vector each
constexpr int DELTA_ROWS = DELTA_NUM_THREADS / DELTA_LANES;  // of a block

// delta[i] = sum over d of grad[i, d] out[i, d] - grad_lse[i]. The gradient of score s[i, j]
// is then p[i, j] (grad[i, :] . v[j, :] - delta[i]): the sum over all keys that softmax's
// backward asks for is one over the columns of out instead.
template <typename T>
__global__ void __launch_bounds__(DELTA_NUM_THREADS) attention_delta_kernel(
    float* __restrict__ delta_ptr,   // (n_batches, n_heads, n_queries)
    const T* __restrict__ grad_ptr,  // (n_batches, n_queries, n_heads, head_dim)
    const T* __restrict__ out_ptr,   // (n_batches, n_queries, n_heads, head_dim)
    const float* __restrict__ grad_lse_ptr,  // (n_batches, n_heads, n_queries), or null
    int64_t n_rows, int n_heads, int64_t n_queries, int head_dim,
    int64_t grad_stride_batch, int64_t grad_stride_row, int64_t grad_stride_head,
    int64_t out_stride_batch, int64_t out_stride_row, int64_t out_stride_head
) {
    // -- tile: DELTA_LANES lanes own a row, each every so manyth vector of it
    constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
    const int lane = threadIdx.x % DELTA_LANES;
    const int64_t row = int64_t{blockIdx.x} * DELTA_ROWS + threadIdx.x / DELTA_LANES;
    const bool is_row = row < n_rows;
    const int64_t query = row % n_queries;
    const int64_t head = row / n_queries % n_heads;
    const int64_t batch = row / n_queries / n_heads;
    grad_ptr +=
        batch * grad_stride_batch + query * grad_stride_row + head * grad_stride_head;
    out_ptr +=
        batch * out_stride_batch + query * out_stride_row + head * out_stride_head;
    const bool is_aligned = reinterpret_cast<uintptr_t>(grad_ptr) % VEC_BYTES == 0 &&
                            reinterpret_cast<uintptr_t>(out_ptr) % VEC_BYTES == 0;

    // -- compute: in float32
    float sum = 0.0f;
    #pragma unroll 4
    for (int d = lane * VEC_SIZE; d < head_dim; d += DELTA_LANES * VEC_SIZE) {
        const int n_valid = is_row ? head_dim - d : 0;
        const auto grad = load<VEC_SIZE>(grad_ptr + d, n_valid, T{}, is_aligned);
        const auto out = load<VEC_SIZE>(out_ptr + d, n_valid, T{}, is_aligned);
        for (int i = 0; i < VEC_SIZE; ++i) sum += to_float(grad[i]) * to_float(out[i]);
    }
    sum = warp_reduce<DELTA_LANES>(sum, Sum{});

    // -- store: in float32
    if (lane == 0 && is_row) {
        delta_ptr[row] = sum - (grad_lse_ptr ? grad_lse_ptr[row] : 0.0f);
    }
}
