// The launches of the backward, by rung.
#pragma once

#include "attention/backward_call.cuh"
#include "attention/backward_first.cuh"
#include "attention/backward_tensor_cores.cuh"
#include "attention/backward_tiled.cuh"
#include "attention/delta.cuh"

template <typename T>
cudaError_t launch_delta(const Launcher& launch, const BackwardCall& call) {
    const HeadRows &grad = call.grad, &out = call.out;
    const int64_t n_rows = grad.n_batches * grad.n_heads * grad.n_rows;
    if (n_rows == 0) return cudaSuccess;
    return launch(
        Plan{
            attention_delta_kernel<T>, dim3(ceil_div(n_rows, DELTA_ROWS)),
            dim3(DELTA_NUM_THREADS)
        },
        call.delta, grad.data, out.data, call.grad_lse, n_rows, grad.n_heads,
        grad.n_rows, grad.n_cols, grad.stride_batch, grad.stride_row, grad.stride_head,
        out.stride_batch, out.stride_row, out.stride_head
    );
}

// p, grad_scores: (n_batches, n_heads, n_queries, n_keys) of float32.
template <typename T>
cudaError_t launch_backward_first(
    const Launcher& launch, const BackwardCall& call, void* p, void* grad_scores
) {
    const HeadRows &grad = call.grad, &q = call.q, &k = call.k, &v = call.v;
    const int64_t head_dim = q.n_cols;
    const auto plan = [&](auto kernel, int64_t n_row_tiles, int64_t n_cols) {
        return plan_first(kernel, n_row_tiles * ceil_div(n_cols, first::BLOCK_N));
    };
    const int64_t n_query_tiles = call.n_query_blocks(first::BLOCK_M);
    const int64_t n_key_tiles = call.n_key_blocks(first::BLOCK_M);
    cudaError_t error = cudaSuccess;
    if (n_query_tiles * k.n_rows > 0) {
        error = launch(
            plan(attention_backward_scores_first_kernel<T>, n_query_tiles, k.n_rows), p,
            grad_scores, grad.data, q.data, k.data, v.data, call.lse, call.delta,
            q.n_heads, k.n_heads, q.n_rows, k.n_rows, head_dim, grad.stride_batch,
            grad.stride_row, grad.stride_head, q.stride_batch, q.stride_row,
            q.stride_head, k.stride_batch, k.stride_row, k.stride_head, v.stride_batch,
            v.stride_row, v.stride_head, call.scale, call.softcap, call.window_left,
            call.window_right
        );
    }
    if (error == cudaSuccess && n_query_tiles > 0) {
        error = launch(
            plan(attention_backward_queries_first_kernel<T>, n_query_tiles, head_dim),
            call.grad_q, grad_scores, k.data, q.n_heads, k.n_heads, q.n_rows, k.n_rows,
            head_dim, k.stride_batch, k.stride_row, k.stride_head, call.scale,
            call.window_left, call.window_right
        );
    }
    if (error == cudaSuccess && n_key_tiles > 0) {
        error = launch(
            plan(attention_backward_keys_first_kernel<T>, n_key_tiles, head_dim),
            call.grad_k, call.grad_v, p, grad_scores, grad.data, q.data, q.n_heads,
            k.n_heads, q.n_rows, k.n_rows, head_dim, grad.stride_batch, grad.stride_row,
            grad.stride_head, q.stride_batch, q.stride_row, q.stride_head, call.scale,
            call.window_left, call.window_right
        );
    }
    return error;
}

// The two kernels that walk over tiles: one for the gradients of k and v, one for that of q.
template <typename... KeysParams, typename... QueriesParams>
cudaError_t launch_backward_by_tiles(
    const Launcher& launch, const BackwardCall& call,
    const Plan<KeysParams...>& keys_plan, const Plan<QueriesParams...>& queries_plan
) {
    const auto start = [&](const auto& plan, auto... grads) {
        const HeadRows &grad = call.grad, &q = call.q, &k = call.k, &v = call.v;
        return launch(
            plan, grads..., grad.data, q.data, k.data, v.data, call.lse, call.delta,
            q.n_heads, k.n_heads, q.n_rows, k.n_rows, q.n_cols, grad.stride_batch,
            grad.stride_row, grad.stride_head, q.stride_batch, q.stride_row,
            q.stride_head, k.stride_batch, k.stride_row, k.stride_head, v.stride_batch,
            v.stride_row, v.stride_head, call.scale, call.softcap, call.window_left,
            call.window_right, call.offsets.n_sequences, call.offsets.q, call.offsets.k
        );
    };
    cudaError_t error = cudaSuccess;
    if (keys_plan.grid.x > 0) error = start(keys_plan, call.grad_k, call.grad_v);
    if (error == cudaSuccess && queries_plan.grid.x > 0) {
        error = start(queries_plan, call.grad_q);
    }
    return error;
}

template <typename T>
cudaError_t launch_backward_tiled(const Launcher& launch, const BackwardCall& call) {
    using namespace tiled;
    const auto start = [&]<int HEAD_DIM, bool ARE_PACKED>() {
        return launch_backward_by_tiles(
            launch, call,
            Plan{
                attention_backward_keys_tiled_kernel<T, HEAD_DIM, ARE_PACKED>,
                dim3(call.n_key_blocks(OWN_ROWS)), dim3(BACKWARD_THREADS),
                sizeof(KeysShared<HEAD_DIM>)
            },
            Plan{
                attention_backward_queries_tiled_kernel<T, HEAD_DIM, ARE_PACKED>,
                dim3(call.n_query_blocks(OWN_ROWS)), dim3(BACKWARD_THREADS),
                sizeof(QueriesShared<HEAD_DIM>)
            }
        );
    };
    return dispatch_head_dim(call.q.n_cols, [&]<int HEAD_DIM>() {
        return call.offsets.q ? start.template operator()<HEAD_DIM, true>()
                              : start.template operator()<HEAD_DIM, false>();
    });
}

// For the types that tensor cores take.
template <typename T>
cudaError_t launch_backward_tensor_cores(
    const Launcher& launch, const BackwardCall& call
) {
    using namespace tensor_cores;
    const auto start = [&]<int HEAD_DIM, bool ARE_PACKED>() {
        return launch_backward_by_tiles(
            launch, call,
            Plan{
                attention_backward_keys_tensor_cores_kernel<T, HEAD_DIM, ARE_PACKED>,
                dim3(call.n_key_blocks(BLOCK_KEYS)), dim3(KEYS_THREADS<HEAD_DIM>),
                sizeof(KeysShared<T, HEAD_DIM>)
            },
            Plan{
                attention_backward_queries_tensor_cores_kernel<T, HEAD_DIM, ARE_PACKED>,
                dim3(call.n_query_blocks(BLOCK_QUERIES<HEAD_DIM>)),
                dim3(QUERIES_THREADS), sizeof(QueriesShared<T, HEAD_DIM>)
            }
        );
    };
    return dispatch_head_dim(call.q.n_cols, [&]<int HEAD_DIM>() {
        return call.offsets.q ? start.template operator()<HEAD_DIM, true>()
                              : start.template operator()<HEAD_DIM, false>();
    });
}
