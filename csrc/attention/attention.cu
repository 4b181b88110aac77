// Attention, the mean of values weighted by softmax of scores, and its backward.
//
//   attention:          out[i, :] = sum over j of p[i, j] v[j, :],
//                       p[i, j] = exp(s[i, j] - lse[i]),
//                       lse[i] = log(sum over j of exp(s[i, j])),
//                       s[i, j] = scale * (q[i, :] . k[j, :]),
//                       over the keys j that query i sees
//   attention_backward: grad_v[j, :] = sum over i of p[i, j] grad[i, :],
//                       grad_q[i, :] = scale * sum over j of g[i, j] k[j, :],
//                       grad_k[j, :] = scale * sum over i of g[i, j] q[i, :],
//                       g[i, j] = p[i, j] (grad[i, :] . v[j, :] - delta[i]),
//                       delta[i] = grad[i, :] . out[i, :] - grad_lse[i]
//
// Layout   q, out: (n_batches, n_queries, n_heads, head_dim); k, v: (n_batches, n_keys,
//          n_kv_heads, head_dim), each with head_dim contiguous and any other strides.
//          Query head h reads head h / (n_heads / n_kv_heads) of k and v. lse:
//          (n_batches, n_heads, n_queries) of float32. Packed sequences, of any lengths, follow
//          each other: n_queries and n_keys are those of all together, and n_batches is 1.
// Traffic  the first rungs write matrices of all scores to memory, and read them again. In
//          the others scores never leave a block, which reads k and v once for all its
//          queries, mostly from the L2; the backward computes them twice, for blocks that own
//          keys and for blocks that own queries. On Hopper it does so only where rows are
//          long: else blocks of keys add up grad_q in memory. Where queries are few, blocks
//          share the keys.
// Limits   scores and sums in float32, the result rounded once; tensor cores take exp(s[i, j]
//          - max) rounded to the dtype. A query that sees no key has 0 as its result, and an
//          lse of -inf. inf or NaN in k never reaches a query that does not see it; in v, and
//          in all that the backward takes, it can on tensor cores, within tiles that are seen
//          in part.
// Mirror   triton_kernels/attention/attention.py
// Source   Vaswani et al. 2017, arXiv:1706.03762; Milakov & Gimelshein 2018,
//          arXiv:1805.02867 (softmax in one pass); Dao et al. 2022, arXiv:2205.14135; Shah
//          et al. 2024, arXiv:2407.08608 (warpgroups that take turns)

#include "attention/backward_launches.cuh"
#include "attention/backward_long_rows.cuh"
#include "attention/backward_twin_launches.cuh"
#include "attention/first.cuh"
#include "attention/regimes.cuh"
#include "attention/split_launches.cuh"
#include "attention/tensor_cores.cuh"
#include "attention/tiled.cuh"
#include "attention/twin_tables.cuh"
#include "common/dtype.cuh"
#include "common/launch.cuh"

// scores: for the first rung, of n_batches * n_heads * n_queries * n_keys; null for others.
// n_taken: an int, in which blocks on Hopper count the tiles of queries that they have taken.
// parts, statistics: for a call of few queries of 16 bits, whose keys are split among n_splits
// blocks; else n_splits is 0. q_offsets, k_offsets: n_sequences + 1 ints each, where packed
// sequences begin and the last one ends; else null.
cudaError_t attention(
    const Launcher& launch, DType dtype, void* out, void* lse, void* n_taken,
    const void* q, const void* k, const void* v, int64_t n_batches, int64_t n_heads,
    int64_t n_kv_heads, int64_t n_queries, int64_t n_keys, int64_t head_dim,
    int64_t out_stride_batch, int64_t out_stride_row, int64_t out_stride_head,
    int64_t q_stride_batch, int64_t q_stride_row, int64_t q_stride_head,
    int64_t k_stride_batch, int64_t k_stride_row, int64_t k_stride_head,
    int64_t v_stride_batch, int64_t v_stride_row, int64_t v_stride_head, float scale,
    float softcap, int64_t window_left, int64_t window_right, int64_t n_splits,
    int64_t n_sequences, const void* q_offsets, const void* k_offsets, void* scores,
    void* parts, void* statistics, int rung
) {
    const Device& device = launch.device();
    const HeadRows out_rows{
        out,      n_batches,        n_queries,      n_heads,
        head_dim, out_stride_batch, out_stride_row, out_stride_head
    };
    const HeadRows q_rows{q,        n_batches,      n_queries,    n_heads,
                          head_dim, q_stride_batch, q_stride_row, q_stride_head};
    const HeadRows k_rows{k,        n_batches,      n_keys,       n_kv_heads,
                          head_dim, k_stride_batch, k_stride_row, k_stride_head};
    const HeadRows v_rows{v,        n_batches,      n_keys,       n_kv_heads,
                          head_dim, v_stride_batch, v_stride_row, v_stride_head};

    constexpr int64_t MOST = int64_t{1} << 30;
    const AttentionCall call{
        .dtype = dtype,
        .n_queries = n_queries,
        .head_dim = head_dim,
        .is_plain = scale > 0.0f && softcap == 0.0f,
        .counts_in_int =
            n_queries + n_keys <= MOST &&
            n_batches * n_heads * ceil_div(n_queries, twin::BOX_SIZE) <= MOST,
        .has_tensor_maps = out_rows.have_tensor_map() && q_rows.have_tensor_map() &&
                           k_rows.have_tensor_map() && v_rows.have_tensor_map(),
        .is_packed = q_offsets != nullptr
    };
    const AttentionRung chosen = choose_rung(device, call, rung);
    if (chosen == AttentionRung::chosen) return cudaErrorNotSupported;
    const bool is_split =
        rung == 0 && n_splits > 0 && chosen >= AttentionRung::tensor_cores;

    const Offsets offsets{q_offsets, k_offsets, n_sequences};
    const auto n_blocks = [&](int64_t block_m) {
        return offsets.count_tiles(n_batches, n_queries, block_m) * n_heads;
    };

    const auto start = [&](const auto& plan) {
        return launch(
            plan, out, lse, q, k, v, n_heads, n_kv_heads, n_queries, n_keys, head_dim,
            out_stride_batch, out_stride_row, out_stride_head, q_stride_batch,
            q_stride_row, q_stride_head, k_stride_batch, k_stride_row, k_stride_head,
            v_stride_batch, v_stride_row, v_stride_head, scale, softcap, window_left,
            window_right, n_sequences, q_offsets, k_offsets
        );
    };
    const auto start_first = [&]<typename T>() {
        const auto n_tiles = [&](int64_t n_cols) {
            return n_blocks(first::BLOCK_M) * ceil_div(n_cols, first::BLOCK_N);
        };
        if (n_keys > 0) {
            const cudaError_t error = launch(
                plan_first(attention_scores_first_kernel<T>, n_tiles(n_keys)), scores,
                q, k, n_heads, n_kv_heads, n_queries, n_keys, head_dim, q_stride_batch,
                q_stride_row, q_stride_head, k_stride_batch, k_stride_row,
                k_stride_head, scale, softcap, window_left, window_right
            );
            if (error != cudaSuccess) return error;
        }
        const cudaError_t error = launch(
            plan_first(attention_softmax_first_kernel<T>, n_blocks(1)), scores, lse,
            n_keys
        );
        if (error != cudaSuccess) return error;
        return launch(
            plan_first(attention_values_first_kernel<T>, n_tiles(head_dim)), out,
            scores, v, n_heads, n_kv_heads, n_queries, n_keys, head_dim,
            out_stride_batch, out_stride_row, out_stride_head, v_stride_batch,
            v_stride_row, v_stride_head, window_left, window_right
        );
    };

    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        if (chosen == AttentionRung::first) {
            return start_first.template operator()<T>();
        }
        if constexpr (sizeof(T) == 2) {
            if (is_split) {
                return launch_split<T>(
                    launch, lse, parts, statistics, out_rows, q_rows, k_rows, v_rows,
                    scale, softcap, window_left, window_right, n_splits
                );
            }
            if (chosen == AttentionRung::twin) {
                return launch_twin<T>(
                    launch, call, lse, n_taken, out_rows, q_rows, k_rows, v_rows, scale,
                    window_left, window_right
                );
            }
        }
        return dispatch_head_dim(head_dim, [&]<int HEAD_DIM>() {
            if constexpr (sizeof(T) == 2) {
                if (chosen == AttentionRung::tensor_cores) {
                    using namespace tensor_cores;
                    const dim3 grid(n_blocks(BLOCK_M<HEAD_DIM>));
                    const auto kernel =
                        call.is_packed
                            ? attention_tensor_cores_kernel<T, HEAD_DIM, true>
                            : attention_tensor_cores_kernel<T, HEAD_DIM>;
                    constexpr int64_t SHARED_BYTES = sizeof(Shared<T, HEAD_DIM>);
                    return start(Plan{kernel, grid, dim3(NUM_THREADS), SHARED_BYTES});
                }
            }
            using namespace tiled;
            const dim3 grid(n_blocks(BLOCK_M<HEAD_DIM>)), block(NUM_THREADS<HEAD_DIM>);
            const auto kernel = call.is_packed
                                    ? attention_tiled_kernel<T, HEAD_DIM, true>
                                    : attention_tiled_kernel<T, HEAD_DIM>;
            return start(Plan{kernel, grid, block, sizeof(Shared<HEAD_DIM>)});
        });
    });
}

// delta: (n_batches, n_heads, n_queries) of float32. p, grad_scores: for the first rung, like
// scores. sums: where the twin adds up grad_q in memory, which it does for a head_dim of 128 at
// most, n_batches * n_heads * ceil(n_queries / 128) * 2 times 64 rows of 64 + 2 or 128 + 2
// floats and 32 more; else null. deterministic: whether equal calls get equal bits, for which
// blocks take turns. grad_q, grad_k, grad_v: contiguous.
cudaError_t attention_backward(
    const Launcher& launch, DType dtype, void* grad_q, void* grad_k, void* grad_v,
    void* delta, const void* grad, const void* grad_lse, const void* q, const void* k,
    const void* v, const void* out, const void* lse, int64_t n_batches, int64_t n_heads,
    int64_t n_kv_heads, int64_t n_queries, int64_t n_keys, int64_t head_dim,
    int64_t grad_stride_batch, int64_t grad_stride_row, int64_t grad_stride_head,
    int64_t q_stride_batch, int64_t q_stride_row, int64_t q_stride_head,
    int64_t k_stride_batch, int64_t k_stride_row, int64_t k_stride_head,
    int64_t v_stride_batch, int64_t v_stride_row, int64_t v_stride_head,
    int64_t out_stride_batch, int64_t out_stride_row, int64_t out_stride_head,
    float scale, float softcap, int64_t window_left, int64_t window_right,
    int64_t n_sequences, const void* q_offsets, const void* k_offsets,
    bool deterministic, void* p, void* grad_scores, void* sums, int rung
) {
    const BackwardCall call{
        .grad_q = grad_q,
        .grad_k = grad_k,
        .grad_v = grad_v,
        .delta = delta,
        .grad_lse = grad_lse,
        .lse = lse,
        .grad =
            {grad, n_batches, n_queries, n_heads, head_dim, grad_stride_batch,
             grad_stride_row, grad_stride_head},
        .q =
            {q, n_batches, n_queries, n_heads, head_dim, q_stride_batch, q_stride_row,
             q_stride_head},
        .k =
            {k, n_batches, n_keys, n_kv_heads, head_dim, k_stride_batch, k_stride_row,
             k_stride_head},
        .v =
            {v, n_batches, n_keys, n_kv_heads, head_dim, v_stride_batch, v_stride_row,
             v_stride_head},
        .out =
            {out, n_batches, n_queries, n_heads, head_dim, out_stride_batch,
             out_stride_row, out_stride_head},
        .scale = scale,
        .softcap = softcap,
        .window_left = window_left,
        .window_right = window_right,
        .offsets = {q_offsets, k_offsets, n_sequences},
        .deterministic = deterministic,
        .sums = sums
    };
    const AttentionCall described = call.described(dtype);
    const AttentionRung chosen = choose_rung(launch.device(), described, rung);
    if (chosen == AttentionRung::chosen) return cudaErrorNotSupported;

    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        if constexpr (sizeof(T) == 2) {
            if (chosen == AttentionRung::twin && computes_at_once(call)) {
                return launch_backward_twin<T>(launch, described, call);
            }
        }
        if (const cudaError_t error = launch_delta<T>(launch, call)) return error;
        if (chosen == AttentionRung::first) {
            return launch_backward_first<T>(launch, call, p, grad_scores);
        }
        if constexpr (sizeof(T) == 2) {
            if (chosen == AttentionRung::twin) {
                return launch_backward_long_rows<T>(launch, described, call);
            }
            if (chosen == AttentionRung::tensor_cores) {
                return launch_backward_tensor_cores<T>(launch, call);
            }
        }
        return launch_backward_tiled<T>(launch, call);
    });
}
