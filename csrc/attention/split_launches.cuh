// The launches of a call whose keys are split: two, or one where there is a single part.
#pragma once

#include "attention/combine.cuh"
#include "attention/regimes.cuh"
#include "attention/split.cuh"
#include "common/tensor_map_4d.cuh"

// parts: n_splits rows of head_dim float32 for each row of out; statistics: two of them.
template <typename T>
cudaError_t launch_split(
    const Launcher& launch, void* lse, void* parts, void* statistics,
    const HeadRows& out, const HeadRows& q, const HeadRows& k, const HeadRows& v,
    float scale, float softcap, int64_t window_left, int64_t window_right,
    int64_t n_splits
) {
    const int64_t n_tile_rows = q.n_rows * (q.n_heads / k.n_heads), head_dim = q.n_cols;
    const auto start_parts = [&]<int BLOCK_M, int HEAD_DIM>() {
        const int64_t n_tiles =
            q.n_batches * k.n_heads * ceil_div(n_tile_rows, BLOCK_M);
        constexpr auto shared_bytes = split::shared_bytes<T, BLOCK_M, HEAD_DIM>;
        // Where blocks follow each other, two share a multiprocessor: one reads keys while
        // the other begins or ends. That is slower where keys are split, and where there are
        // no more blocks than multiprocessors: some would get two, and others none.
        const bool in_pairs = n_splits == 1 && n_tiles > launch.device().n_sms;
        const int64_t room = launch.device().max_shared_bytes / (in_pairs ? 2 : 1);
        int n_warps = split::MAX_WARPS;
        while (n_warps > 1 && shared_bytes(n_warps) > room) n_warps /= 2;
        return launch(
            Plan{
                .kernel = attention_split_kernel<T, BLOCK_M, HEAD_DIM>,
                .grid = dim3(n_tiles * n_splits),
                .block = dim3(n_warps * WARP_SIZE),
                .shared_bytes = shared_bytes(n_warps),
                .is_dependent = true
            },
            const_cast<void*>(out.data), lse, parts, statistics, q.data, k.data, v.data,
            q.n_heads, k.n_heads, q.n_rows, k.n_rows, head_dim, out.stride_batch,
            out.stride_row, out.stride_head, q.stride_batch, q.stride_row,
            q.stride_head, k.stride_batch, k.stride_row, k.stride_head, v.stride_batch,
            v.stride_row, v.stride_head, scale, softcap, window_left, window_right,
            n_splits
        );
    };
    const cudaError_t error = dispatch_head_dim(head_dim, [&]<int HEAD_DIM>() {
        // 32 rows share what a warp reads of k and v, if their results fit its registers.
        if constexpr (HEAD_DIM <= 128) {
            if (n_tile_rows > 16) {
                return start_parts.template operator()<32, HEAD_DIM>();
            }
        }
        return start_parts.template operator()<16, HEAD_DIM>();
    });
    if (error != cudaSuccess || n_splits == 1) return error;
    const auto start_combine = [&]<int BLOCK_N>() {
        const int64_t n_rows = q.n_batches * q.n_heads * q.n_rows;
        const int64_t n_warps = n_rows * ceil_div(head_dim, BLOCK_N);
        return launch(
            Plan{
                .kernel = attention_combine_kernel<T, BLOCK_N>,
                .grid = dim3(ceil_div(n_warps, combine::NUM_WARPS)),
                .block = dim3(combine::NUM_THREADS),
                .is_dependent = true
            },
            const_cast<void*>(out.data), lse, parts, statistics, n_rows, q.n_heads,
            q.n_rows, head_dim, out.stride_batch, out.stride_row, out.stride_head,
            scale, softcap, n_splits
        );
    };
    // Of many parts a warp reads many at a time.
    if (n_splits > 8) return start_combine.template operator()<16>();
    return start_combine.template operator()<64>();
}
