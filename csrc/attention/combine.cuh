// The second launch of a call whose keys are split: what the parts give is put together.
//
// A part's sums are relative to its own largest score, which is off the largest of all by a
// factor of a power of two. The parts are added in the same order in every run. They were
// written just before, and mostly come from the L2.
#pragma once

#include "attention/scores.cuh"
#include "common/launch.cuh"
#include "common/ptx/griddepcontrol.cuh"
#include "common/reduce.cuh"
#include "common/vec.cuh"

namespace combine {
constexpr int NUM_WARPS = 4;
constexpr int NUM_THREADS = NUM_WARPS * WARP_SIZE;
constexpr int VEC_SIZE = 4;
}  // namespace combine

// Stores a row of out: sums divided by the sum of their weights, rounded once; 0 for a query
// that sees no key.
template <typename T, int VEC_SIZE>
__device__ __forceinline__ void store_means(
    T* ptr, Vec<float, VEC_SIZE> sums, float row_sum, int n_valid
) {
    const float inverse = row_sum == 0.0f ? 0.0f : 1.0f / row_sum;
    for (int c = 0; c < VEC_SIZE; ++c) sums[c] *= inverse;
    const bool is_aligned =
        reinterpret_cast<uintptr_t>(ptr) % (VEC_SIZE * sizeof(T)) == 0;
    store(ptr, from_float<T>(sums), n_valid, is_aligned);
}

template <typename T, int BLOCK_N>
__global__ void __launch_bounds__(combine::NUM_THREADS) attention_combine_kernel(
    T* __restrict__ out_ptr,      // (n_batches, n_queries, n_heads, head_dim)
    float* __restrict__ lse_ptr,  // (n_batches, n_heads, n_queries)
    const float* parts_ptr,       // (n_rows, n_splits, head_dim), just written
    const float* statistics_ptr,  // (n_rows, n_splits, 2), just written
    int64_t n_rows, int n_heads, int64_t n_queries, int head_dim,
    int64_t out_stride_batch, int64_t out_stride_row, int64_t out_stride_head,
    float scale, float softcap, int n_splits
) {
    using namespace combine;
    constexpr int COL_LANES = BLOCK_N / VEC_SIZE;  // which read a part
    constexpr int PARTS = WARP_SIZE / COL_LANES;   // which a warp reads at a time

    // -- tile: a warp owns BLOCK_N columns of a row, and reads PARTS parts at a time
    ptx::griddepcontrol_launch_dependents();
    const int lane = threadIdx.x % WARP_SIZE;
    const int n_col_tiles = (head_dim + BLOCK_N - 1) / BLOCK_N;
    const int64_t tile = int64_t{blockIdx.x} * NUM_WARPS + threadIdx.x / WARP_SIZE;
    const int64_t row = tile / n_col_tiles;
    const int col = tile % n_col_tiles * BLOCK_N + lane % COL_LANES * VEC_SIZE;
    ptx::griddepcontrol_wait();
    if (row >= n_rows) return;
    const int64_t query = row % n_queries;
    const int64_t head = row / n_queries % n_heads;
    const int64_t batch = row / n_queries / n_heads;
    out_ptr +=
        batch * out_stride_batch + query * out_stride_row + head * out_stride_head;
    parts_ptr += row * n_splits * head_dim + col;
    statistics_ptr += row * n_splits * 2;
    const bool is_plain = softcap == 0.0f && scale > 0.0f;
    const float unit = is_plain ? scale : 1.0f;

    // -- compute: the largest score, and then all sums relative to it
    float row_max = -INFINITY;
    for (int i = lane; i < n_splits; i += WARP_SIZE) {
        row_max = fmaxf(row_max, statistics_ptr[2 * i]);
    }
    const float origin = finite_origin(warp_reduce<WARP_SIZE>(row_max, Max{}));
    float row_sum = 0.0f;
    Vec<float, VEC_SIZE> sums{};
    #pragma unroll 4
    for (int i = lane / COL_LANES; i < n_splits; i += PARTS) {
        const auto [part_max, part_sum] =
            *reinterpret_cast<const float2*>(statistics_ptr + 2 * i);
        const auto part = load<VEC_SIZE>(
            parts_ptr + i * head_dim, head_dim - col, 0.0f, head_dim % VEC_SIZE == 0
        );
        const float factor = ptx::exp2((part_max - origin) * (unit * LOG2_E));
        row_sum += factor * part_sum;
        for (int c = 0; c < VEC_SIZE; ++c) sums[c] += factor * part[c];
    }
    #pragma unroll
    for (int offset = COL_LANES; offset < WARP_SIZE; offset *= 2) {
        row_sum += __shfl_xor_sync(0xffffffff, row_sum, offset);
        for (int c = 0; c < VEC_SIZE; ++c) {
            sums[c] += __shfl_xor_sync(0xffffffff, sums[c], offset);
        }
    }

    // -- store: by the lanes that have the columns of the tile
    if (lane < COL_LANES) store_means(out_ptr + col, sums, row_sum, head_dim - col);
    if (lane == 0 && col == 0) lse_ptr[row] = origin * unit + logf(row_sum);
}
