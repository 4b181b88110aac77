// The first launch of a backward: for every row, what its scores' gradients have in common.
#pragma once

#include "common/launch.cuh"
#include "common/reduce.cuh"

constexpr int DELTA_NUM_THREADS = 256;

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
    // -- tile: a warp owns a row, a lane every 32nd column of it
    constexpr int ROWS_PER_BLOCK = DELTA_NUM_THREADS / WARP_SIZE;
    const int lane = threadIdx.x % WARP_SIZE;
    const int64_t row = int64_t{blockIdx.x} * ROWS_PER_BLOCK + threadIdx.x / WARP_SIZE;
    if (row >= n_rows) return;
    const int64_t query = row % n_queries;
    const int64_t head = row / n_queries % n_heads;
    const int64_t batch = row / n_queries / n_heads;
    grad_ptr +=
        batch * grad_stride_batch + query * grad_stride_row + head * grad_stride_head;
    out_ptr +=
        batch * out_stride_batch + query * out_stride_row + head * out_stride_head;

    // -- compute: in float32
    float sum = 0.0f;
    for (int d = lane; d < head_dim; d += WARP_SIZE) {
        sum += to_float(grad_ptr[d]) * to_float(out_ptr[d]);
    }
    sum = warp_reduce<WARP_SIZE>(sum, Sum{});

    // -- store: in float32
    if (lane == 0) delta_ptr[row] = sum - (grad_lse_ptr ? grad_lse_ptr[row] : 0.0f);
}
