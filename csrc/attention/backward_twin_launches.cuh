// The launches of the twin's backward, and its tiles.
#pragma once

#include <algorithm>

#include "attention/backward_call.cuh"
#include "attention/backward_sums.cuh"
#include "attention/backward_twin.cuh"
#include "attention/twin_tables.cuh"

// A tile, and the calls that it is for: a block of 128 keys takes so many queries in a step.
struct BackwardTile {
    int head_dim;  // the largest that it is for
    int queries_in_step;
    int num_stages;

    template <typename T>
    constexpr bool is_for() const {
        return true;
    }
    constexpr bool serves(const Device&, const AttentionCall& call) const {
        return call.head_dim <= head_dim;
    }
};

// Sums of longer rows leave no registers for a part; three stages of 64 columns, no memory for
// barriers.
constexpr BackwardTile BACKWARD_TILES[] = {
    {.head_dim = 64, .queries_in_step = 128, .num_stages = 2},
    {.head_dim = 128, .queries_in_step = 64, .num_stages = 3},
};

// How keys are taken: so many heads' at a time, and of the first n_from_last heads from the
// last ones back.
struct KeyOrder {
    int64_t heads_at_once;
    int64_t n_from_last;
};

// So few heads are taken at a time that what their blocks read and add up, queries, their
// gradients and sums, stays in the L2, and so many that there are two blocks for each
// multiprocessor. Blocks that take turns take causal keys from the last ones back, as
// backward_turns.cuh tells, unless the L2 is far too small for all of their queries: from the
// first keys on, blocks read the same ones at the same time. The last heads leave no
// multiprocessor with a long tile in the end.
template <typename T, int HEAD_DIM>
KeyOrder order_of_keys(const BackwardCall& call, int64_t n_tiles, int64_t n_sms) {
    constexpr int64_t L2_BYTES = 20 << 20;  // of the 50 MB of an H200
    constexpr int64_t ROW_BYTES = HEAD_DIM * (2 * sizeof(T) + sizeof(float));
    const int64_t n_heads = call.q.n_batches * call.k.n_heads;
    const int64_t n_sharing = call.q.n_heads / call.k.n_heads;
    const int64_t head_bytes = ROW_BYTES * call.q.n_rows * n_sharing;
    const int64_t n_in_l2 = L2_BYTES / head_bytes, n_running = 2 * n_sms / n_tiles;
    const int64_t heads_at_once =
        std::clamp<int64_t>(std::max(n_in_l2, n_running), 1, n_heads);
    const bool is_causal = call.window_right < call.q.n_rows + call.k.n_rows;
    const bool are_from_last =
        call.deterministic && is_causal && heads_at_once * head_bytes <= 2 * L2_BYTES;
    const int64_t n_from_last = (n_heads - 1) / heads_at_once * heads_at_once;
    return {heads_at_once, are_from_last ? n_from_last : 0};
}

// Whether a call is for one of these tiles.
inline bool computes_at_once(const BackwardCall& call) {
    return call.q.n_cols <= std::end(BACKWARD_TILES)[-1].head_dim;
}

template <typename T, BackwardTile TILE, bool TAKES_TURNS>
cudaError_t launch_backward_tile(const Launcher& launch, const BackwardCall& call) {
    constexpr int HEAD_DIM = TILE.head_dim, NUM_STAGES = TILE.num_stages;
    constexpr int BLOCK_M = TILE.queries_in_step, BLOCK_N = 128;
    const HeadRows &q = call.q, &k = call.k, &grad = call.grad, &out = call.out;
    TensorMap4D grad_q_map =
        make_tensor_map<T>(contiguous_like(call.grad_q, q), twin::BOX_SIZE);
    TensorMap4D grad_k_map =
        make_tensor_map<T>(contiguous_like(call.grad_k, k), twin::BOX_SIZE);
    TensorMap4D grad_v_map =
        make_tensor_map<T>(contiguous_like(call.grad_v, call.v), twin::BOX_SIZE);
    TensorMap4D grad_map = make_tensor_map<T>(grad, BLOCK_M);
    TensorMap4D q_map = make_tensor_map<T>(q, BLOCK_M);
    TensorMap4D k_map = make_tensor_map<T>(k, twin::BOX_SIZE);
    TensorMap4D v_map = make_tensor_map<T>(call.v, twin::BOX_SIZE);
    for (TensorMap4D* map :
         {&grad_q_map, &grad_k_map, &grad_v_map, &grad_map, &q_map, &k_map, &v_map}) {
        if (launch.describes()) break;
        if (const cudaError_t error = encode_tensor_map<T>(map)) return error;
    }

    const int64_t n_sums = twin::count_sums<BLOCK_M>(q.n_rows);
    const int64_t n_all_sums = q.n_batches * q.n_heads * n_sums;
    const cudaError_t error = launch(
        Plan{
            attention_begin_sums_kernel<T, HEAD_DIM>, dim3(n_all_sums),
            dim3(twin::BEGIN_NUM_THREADS)
        },
        call.sums, grad.data, out.data, call.grad_lse, call.lse, n_sums, q.n_heads,
        q.n_rows, q.n_cols, grad.stride_batch, grad.stride_row, grad.stride_head,
        out.stride_batch, out.stride_row, out.stride_head
    );
    if (error != cudaSuccess) return error;

    const int64_t n_tiles = ceil_div(k.n_rows, BLOCK_N);
    const KeyOrder order =
        order_of_keys<T, HEAD_DIM>(call, n_tiles, launch.device().n_sms);
    using Shared = twin::BackwardShared<HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES>;
    const cudaError_t main_error = launch(
        Plan{
            attention_backward_kernel<
                T, HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES, TAKES_TURNS>,
            dim3(q.n_batches * k.n_heads * n_tiles), dim3(twin::BACKWARD_NUM_THREADS),
            sizeof(Shared)
        },
        call.sums, grad_k_map, grad_v_map, grad_map, q_map, k_map, v_map, q.n_batches,
        q.n_heads, k.n_heads, q.n_rows, k.n_rows, order.heads_at_once,
        order.n_from_last, call.scale, call.window_left, call.window_right
    );
    if (main_error != cudaSuccess) return main_error;

    return launch(
        Plan{
            attention_end_sums_kernel<T, HEAD_DIM>,
            dim3(n_all_sums * HEAD_DIM / twin::BOX_SIZE), dim3(twin::WARPGROUP_SIZE),
            sizeof(twin::Box)
        },
        grad_q_map, call.sums, n_sums, q.n_heads, call.scale
    );
}

template <typename T>
cudaError_t launch_backward_twin(
    const Launcher& launch, const AttentionCall& described, const BackwardCall& call
) {
    return choose_tile<T, BACKWARD_TILES>(
        launch.device(), described, [&]<BackwardTile TILE>() {
            return call.deterministic
                       ? launch_backward_tile<T, TILE, true>(launch, call)
                       : launch_backward_tile<T, TILE, false>(launch, call);
        }
    );
}
