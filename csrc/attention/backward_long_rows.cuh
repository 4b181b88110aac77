// The twin where rows are long: their sums leave no registers for a part of queries' gradients,
// and two kernels compute two of the products once more, as in the rung before. One owns keys,
// the other queries. A warp loads, two warpgroups multiply: from where TMA has copied both
// matrices of a product, for one of them while the other computes exponentials.
#pragma once

#include "attention/backward_call.cuh"
#include "attention/backward_keys.cuh"
#include "attention/backward_queries.cuh"
#include "attention/twin_tables.cuh"

// Tiles of the two kernels, and the calls that they are for. A block of keys takes so many
// queries in a step, a block of queries so many keys.
struct LongRowsTile {
    int head_dim;  // the largest that it is for
    int keys_in_block;
    int queries_in_step;
    int query_stages;
    int keys_in_step;
    int k_stages;
    int v_stages;
    int queries_in_block = 128;

    template <typename T>
    constexpr bool is_for() const {
        return true;
    }
    constexpr bool serves(const Device&, const AttentionCall& call) const {
        return call.head_dim <= head_dim;
    }
};

// Registers bound a step, which has two matrices of scores besides the sums; shared memory
// bounds the stages.
constexpr LongRowsTile LONG_ROWS_TILES[] = {
    {.head_dim = 256,
     .keys_in_block = 64,
     .queries_in_step = 64,
     .query_stages = 2,
     .keys_in_step = 64,
     .k_stages = 2,
     .v_stages = 1},
};

template <typename T, LongRowsTile TILE>
cudaError_t launch_backward_keys(const Launcher& launch, const BackwardCall& call) {
    constexpr int HEAD_DIM = TILE.head_dim, BLOCK_N = TILE.keys_in_block;
    constexpr int BLOCK_M = TILE.queries_in_step, NUM_STAGES = TILE.query_stages;
    // What a block owns comes, and leaves, in boxes of 64 rows.
    TensorMap4D grad_k =
        make_tensor_map<T>(contiguous_like(call.grad_k, call.k), twin::BOX_SIZE);
    TensorMap4D grad_v =
        make_tensor_map<T>(contiguous_like(call.grad_v, call.v), twin::BOX_SIZE);
    TensorMap4D grad = make_tensor_map<T>(call.grad, BLOCK_M);
    TensorMap4D q = make_tensor_map<T>(call.q, BLOCK_M);
    TensorMap4D k = make_tensor_map<T>(call.k, twin::BOX_SIZE);
    TensorMap4D v = make_tensor_map<T>(call.v, twin::BOX_SIZE);
    for (TensorMap4D* map : {&grad_k, &grad_v, &grad, &q, &k, &v}) {
        if (launch.describes()) break;
        if (const cudaError_t error = encode_tensor_map<T>(map)) return error;
    }
    const int64_t n_batches = call.q.n_batches, n_queries = call.q.n_rows;
    const int64_t n_keys = call.k.n_rows, n_all_heads = n_batches * call.k.n_heads;
    const int64_t n_sharing = call.q.n_heads / call.k.n_heads;
    const int64_t row_bytes = call.q.n_cols * sizeof(T);
    using Shared = twin::BackwardKeysShared<HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES>;
    return launch(
        Plan{
            attention_backward_keys_kernel<T, HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES>,
            dim3(n_all_heads * ceil_div(n_keys, BLOCK_N)),
            dim3(twin::BACKWARD_NUM_THREADS), sizeof(Shared)
        },
        grad_k, grad_v, grad, q, k, v, call.lse, call.delta, n_batches, call.q.n_heads,
        call.k.n_heads, n_queries, n_keys,
        heads_in_l2(n_all_heads, n_sharing * n_queries, row_bytes, 1), call.scale,
        call.window_left, call.window_right
    );
}

template <typename T, LongRowsTile TILE>
cudaError_t launch_backward_queries(const Launcher& launch, const BackwardCall& call) {
    constexpr int HEAD_DIM = TILE.head_dim, BLOCK_M = TILE.queries_in_block;
    constexpr int BLOCK_N = TILE.keys_in_step;
    constexpr int K_STAGES = TILE.k_stages, V_STAGES = TILE.v_stages;
    TensorMap4D grad_q =
        make_tensor_map<T>(contiguous_like(call.grad_q, call.q), twin::BOX_SIZE);
    TensorMap4D grad = make_tensor_map<T>(call.grad, twin::BOX_SIZE);
    TensorMap4D q = make_tensor_map<T>(call.q, twin::BOX_SIZE);
    TensorMap4D k = make_tensor_map<T>(call.k, BLOCK_N);
    TensorMap4D v = make_tensor_map<T>(call.v, BLOCK_N);
    for (TensorMap4D* map : {&grad_q, &grad, &q, &k, &v}) {
        if (launch.describes()) break;
        if (const cudaError_t error = encode_tensor_map<T>(map)) return error;
    }
    const int64_t n_batches = call.q.n_batches, n_queries = call.q.n_rows;
    const int64_t n_keys = call.k.n_rows, n_all_heads = n_batches * call.q.n_heads;
    const int64_t n_sharing = call.q.n_heads / call.k.n_heads;
    const int64_t row_bytes = call.q.n_cols * sizeof(T);
    using Shared =
        twin::BackwardQueriesShared<HEAD_DIM, BLOCK_M, BLOCK_N, K_STAGES, V_STAGES>;
    return launch(
        Plan{
            attention_backward_queries_kernel<
                T, HEAD_DIM, BLOCK_M, BLOCK_N, K_STAGES, V_STAGES>,
            dim3(n_all_heads * ceil_div(n_queries, BLOCK_M)),
            dim3(twin::BACKWARD_NUM_THREADS), sizeof(Shared)
        },
        grad_q, grad, q, k, v, call.lse, call.delta, n_batches, call.q.n_heads,
        call.k.n_heads, n_queries, n_keys,
        heads_in_l2(n_all_heads, n_keys, row_bytes, n_sharing), call.scale,
        call.window_left, call.window_right
    );
}

template <typename T>
cudaError_t launch_backward_long_rows(
    const Launcher& launch, const AttentionCall& described, const BackwardCall& call
) {
    return choose_tile<T, LONG_ROWS_TILES>(
        launch.device(), described, [&]<LongRowsTile TILE>() {
            const cudaError_t error = launch_backward_keys<T, TILE>(launch, call);
            if (error != cudaSuccess) return error;
            return launch_backward_queries<T, TILE>(launch, call);
        }
    );
}
