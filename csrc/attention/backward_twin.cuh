// The backward's kernels for Hopper: their tiles, and how a call is cut up into them.
#pragma once

#include "attention/backward_keys.cuh"
#include "attention/backward_queries.cuh"
#include "attention/hopper_tables.cuh"

// Tiles of the two kernels, and the calls that they are for. A block of keys takes so many
// queries in a step, a block of queries so many keys.
struct BackwardTile {
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
constexpr BackwardTile BACKWARD_TILES[] = {
    {.head_dim = 64,
     .keys_in_block = 128,
     .queries_in_step = 128,
     .query_stages = 3,
     .keys_in_step = 128,
     .k_stages = 3,
     .v_stages = 3},
    {.head_dim = 128,
     .keys_in_block = 128,
     .queries_in_step = 64,
     .query_stages = 3,
     .keys_in_step = 128,
     .k_stages = 2,
     .v_stages = 2},
    {.head_dim = 256,
     .keys_in_block = 64,
     .queries_in_step = 64,
     .query_stages = 2,
     .keys_in_step = 64,
     .k_stages = 2,
     .v_stages = 1},
};

// Gradients of rows of one size, contiguous.
inline HeadRows contiguous_like(void* data, const HeadRows& rows) {
    const int64_t row = rows.n_heads * rows.n_cols;
    return {data,        rows.n_batches,    rows.n_rows, rows.n_heads,
            rows.n_cols, rows.n_rows * row, row,         rows.n_cols};
}

// The tensors of a call, with rows for each head. Gradients are those of what they bear the
// name of, `grad` is that of out.
struct BackwardRows {
    HeadRows grad_q, grad_k, grad_v, grad, q, k, v;

    AttentionCall call(DType dtype, bool is_plain) const {
        constexpr int64_t MOST = int64_t{1} << 30;
        const auto n_tiles = [](const HeadRows& rows) {
            return rows.n_batches * rows.n_heads *
                   ceil_div(rows.n_rows, twin::BOX_SIZE);
        };
        return {
            .dtype = dtype,
            .n_queries = q.n_rows,
            .head_dim = q.n_cols,
            .is_plain = is_plain,
            .counts_in_int =
                q.n_rows + k.n_rows <= MOST && n_tiles(q) <= MOST && n_tiles(k) <= MOST,
            .has_tensor_maps = grad_q.have_tensor_map() && grad_k.have_tensor_map() &&
                               grad_v.have_tensor_map() && grad.have_tensor_map() &&
                               q.have_tensor_map() && k.have_tensor_map() &&
                               v.have_tensor_map()
        };
    }
};

template <typename T, BackwardTile TILE>
cudaError_t launch_backward_keys(
    const Launcher& launch, const BackwardRows& rows, const void* lse,
    const void* delta, float scale, int64_t window_left, int64_t window_right
) {
    constexpr int HEAD_DIM = TILE.head_dim, BLOCK_N = TILE.keys_in_block;
    constexpr int BLOCK_M = TILE.queries_in_step, NUM_STAGES = TILE.query_stages;
    // What a block owns comes, and leaves, in boxes of 64 rows.
    TensorMap4D grad_k = make_tensor_map<T>(rows.grad_k, twin::BOX_SIZE);
    TensorMap4D grad_v = make_tensor_map<T>(rows.grad_v, twin::BOX_SIZE);
    TensorMap4D grad = make_tensor_map<T>(rows.grad, BLOCK_M);
    TensorMap4D q = make_tensor_map<T>(rows.q, BLOCK_M);
    TensorMap4D k = make_tensor_map<T>(rows.k, twin::BOX_SIZE);
    TensorMap4D v = make_tensor_map<T>(rows.v, twin::BOX_SIZE);
    for (TensorMap4D* map : {&grad_k, &grad_v, &grad, &q, &k, &v}) {
        if (launch.describes()) break;
        if (const cudaError_t error = encode_tensor_map<T>(map)) return error;
    }
    const int64_t n_batches = rows.q.n_batches, n_queries = rows.q.n_rows;
    const int64_t n_keys = rows.k.n_rows, n_all_heads = n_batches * rows.k.n_heads;
    const int64_t n_sharing = rows.q.n_heads / rows.k.n_heads;
    const int64_t row_bytes = rows.q.n_cols * sizeof(T);
    using Shared = twin::BackwardKeysShared<HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES>;
    return launch(
        Plan{
            attention_backward_keys_kernel<T, HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES>,
            dim3(n_all_heads * ceil_div(n_keys, BLOCK_N)),
            dim3(twin::BACKWARD_NUM_THREADS), sizeof(Shared)
        },
        grad_k, grad_v, grad, q, k, v, lse, delta, n_batches, rows.q.n_heads,
        rows.k.n_heads, n_queries, n_keys,
        heads_in_l2(n_all_heads, n_sharing * n_queries, row_bytes, 1), scale,
        window_left, window_right
    );
}

template <typename T, BackwardTile TILE>
cudaError_t launch_backward_queries(
    const Launcher& launch, const BackwardRows& rows, const void* lse,
    const void* delta, float scale, int64_t window_left, int64_t window_right
) {
    constexpr int HEAD_DIM = TILE.head_dim, BLOCK_M = TILE.queries_in_block;
    constexpr int BLOCK_N = TILE.keys_in_step;
    constexpr int K_STAGES = TILE.k_stages, V_STAGES = TILE.v_stages;
    TensorMap4D grad_q = make_tensor_map<T>(rows.grad_q, twin::BOX_SIZE);
    TensorMap4D grad = make_tensor_map<T>(rows.grad, twin::BOX_SIZE);
    TensorMap4D q = make_tensor_map<T>(rows.q, twin::BOX_SIZE);
    TensorMap4D k = make_tensor_map<T>(rows.k, BLOCK_N);
    TensorMap4D v = make_tensor_map<T>(rows.v, BLOCK_N);
    for (TensorMap4D* map : {&grad_q, &grad, &q, &k, &v}) {
        if (launch.describes()) break;
        if (const cudaError_t error = encode_tensor_map<T>(map)) return error;
    }
    const int64_t n_batches = rows.q.n_batches, n_queries = rows.q.n_rows;
    const int64_t n_keys = rows.k.n_rows, n_all_heads = n_batches * rows.q.n_heads;
    const int64_t n_sharing = rows.q.n_heads / rows.k.n_heads;
    const int64_t row_bytes = rows.q.n_cols * sizeof(T);
    using Shared =
        twin::BackwardQueriesShared<HEAD_DIM, BLOCK_M, BLOCK_N, K_STAGES, V_STAGES>;
    return launch(
        Plan{
            attention_backward_queries_kernel<
                T, HEAD_DIM, BLOCK_M, BLOCK_N, K_STAGES, V_STAGES>,
            dim3(n_all_heads * ceil_div(n_queries, BLOCK_M)),
            dim3(twin::BACKWARD_NUM_THREADS), sizeof(Shared)
        },
        grad_q, grad, q, k, v, lse, delta, n_batches, rows.q.n_heads, rows.k.n_heads,
        n_queries, n_keys, heads_in_l2(n_all_heads, n_keys, row_bytes, n_sharing),
        scale, window_left, window_right
    );
}

template <typename T>
cudaError_t launch_backward_on_hopper(
    const Launcher& launch, const AttentionCall& call, const BackwardRows& rows,
    const void* lse, const void* delta, float scale, int64_t window_left,
    int64_t window_right
) {
    const auto start = [&]<BackwardTile TILE>() {
        const cudaError_t error = launch_backward_keys<T, TILE>(
            launch, rows, lse, delta, scale, window_left, window_right
        );
        if (error != cudaSuccess) return error;
        return launch_backward_queries<T, TILE>(
            launch, rows, lse, delta, scale, window_left, window_right
        );
    };
    return choose_tile<T, BACKWARD_TILES>(launch.device(), call, start);
}
