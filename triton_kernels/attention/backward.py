"""The launcher of attention's backward."""

import math

import triton

from triton_kernels.attention.backward_first import (
    attention_backward_keys_first_kernel,
    attention_backward_queries_first_kernel,
    attention_backward_scores_first_kernel,
)
from triton_kernels.attention.backward_long_rows import launch_backward_long_rows
from triton_kernels.attention.backward_tables import (
    KEYS_TENSOR_CORES_TILES,
    KEYS_TILED_TILES,
    QUERIES_TENSOR_CORES_TILES,
    QUERIES_TILED_TILES,
)
from triton_kernels.attention.backward_tensor_cores import (
    attention_backward_keys_tensor_cores_kernel,
    attention_backward_queries_tensor_cores_kernel,
)
from triton_kernels.attention.backward_tiled import (
    attention_backward_keys_tiled_kernel,
    attention_backward_queries_tiled_kernel,
)
from triton_kernels.attention.backward_twin_launches import (
    computes_at_once,
    launch_backward_twin,
)
from triton_kernels.attention.delta import attention_delta_kernel
from triton_kernels.attention.head_maps import HeadRows, contiguous_like
from triton_kernels.attention.regimes import (
    MOST,
    TINY,
    AttentionRung,
    Call,
)
from triton_kernels.attention.sequences import count_tiles
from triton_kernels.attention.tables import (
    DELTA_BLOCK_M,
    FIRST_TILE,
    choose,
    choose_rung,
)
from triton_kernels.attention.twin_tables import BOX_SIZE

# Of each rung the kernel and the tiles that own keys, and those that own queries.
KERNELS = {
    AttentionRung.TILED: (
        (attention_backward_keys_tiled_kernel, KEYS_TILED_TILES),
        (attention_backward_queries_tiled_kernel, QUERIES_TILED_TILES),
    ),
    AttentionRung.TENSOR_CORES: (
        (attention_backward_keys_tensor_cores_kernel, KEYS_TENSOR_CORES_TILES),
        (attention_backward_queries_tensor_cores_kernel, QUERIES_TENSOR_CORES_TILES),
    ),
}


def attention_backward(
    grad_q,
    grad_k,
    grad_v,
    delta,
    grad,
    grad_lse,
    q,
    k,
    v,
    out,
    lse,
    n_batches,
    n_heads,
    n_kv_heads,
    n_queries,
    n_keys,
    head_dim,
    *strides,
    scale,
    softcap,
    window_left,
    window_right,
    n_sequences,
    q_offsets,
    k_offsets,
    deterministic,
    p,
    grad_scores,
    sums,
    rung,
):
    """Launches the kernels for a call on the current device and stream.

    delta: (n_batches, n_heads, n_queries) of float32. p and grad_scores are for the
    first rung, like scores. sums: where the twin adds up grad_q in memory, which it
    does for a head_dim of 128 at most, n_batches * n_heads * ceil(n_queries / 128) * 2
    times 64 rows of 64 + 2 or 128 + 2 floats and 32 more; else None. deterministic:
    whether equal calls get equal bits, for which programs take turns. grad_q, grad_k
    and grad_v are contiguous. q_offsets, k_offsets: as in attention.
    """
    strides, out_strides = strides[:12], strides[12:]
    rows = tuple(
        HeadRows(x, (n_batches, n_rows, heads, head_dim), strides[i : i + 3])
        for x, n_rows, heads, i in (
            (grad, n_queries, n_heads, 0),
            (q, n_queries, n_heads, 3),
            (k, n_keys, n_kv_heads, 6),
            (v, n_keys, n_kv_heads, 9),
        )
    )
    grads = grad_q, grad_k, grad_v
    grad_rows = map(contiguous_like, grads, rows[1:])
    divisibility = math.gcd(head_dim, *strides, 16)
    call = Call(
        *(grad_q.dtype, n_queries, head_dim),
        is_plain=scale >= TINY and softcap == 0.0,
        counts_in_int=n_queries + n_keys <= MOST
        and n_batches * n_heads * triton.cdiv(max(n_queries, n_keys), BOX_SIZE) <= MOST,
        has_tensor_maps=all(each.have_tensor_map() for each in (*rows, *grad_rows)),
        has_vectors=divisibility * grad_q.element_size() >= 8,
        is_packed=q_offsets is not None,
    )
    chosen = choose_rung(call, rung)
    sizes = (n_heads, n_kv_heads, n_queries, n_keys, head_dim)
    window = (window_left, window_right)
    if chosen == AttentionRung.TWIN and computes_at_once(call):
        results = HeadRows(out, rows[0].sizes, out_strides), lse, grad_lse
        launch_backward_twin(
            *(call, grads, sums, rows, results, scale, window, deterministic)
        )
        return
    n_rows, n_kv_matrices = n_batches * n_heads * n_queries, n_batches * n_kv_heads
    if n_rows > 0:
        attention_delta_kernel[(triton.cdiv(n_rows, DELTA_BLOCK_M),)](
            *(delta, grad, out, grad_lse, n_rows, n_heads, n_queries, head_dim),
            *(*strides[:3], *out_strides),
            BLOCK_M=DELTA_BLOCK_M,
            BLOCK_K=max(16, triton.next_power_of_2(head_dim)),
            num_warps=4,
            enable_fp_fusion=True,
        )
    if chosen == AttentionRung.FIRST:
        _launch_first(
            (grad_q, grad_k, grad_v, p, grad_scores, grad, q, k, v, lse, delta),
            *(n_batches, sizes, strides, scale, softcap, window),
        )
        return
    if chosen == AttentionRung.TWIN:
        launch_backward_long_rows(call, grads, rows, (lse, delta), scale, window)
        return
    packed = (n_sequences, q_offsets, k_offsets)
    inputs = (grad, q, k, v, lse, delta, *sizes, *strides, scale, softcap, *window)
    on_keys, on_queries = KERNELS[chosen]
    if n_kv_matrices * n_keys > 0:
        kernel, tiles = on_keys
        tile = choose(tiles, call)
        n_tiles = count_tiles(n_batches, n_keys, n_sequences, k_offsets, tile.block_n)
        kernel[(n_tiles * n_kv_heads,)](
            *(grad_k, grad_v, *inputs, *packed),
            **tile.constants(call),
            DIVISIBILITY=divisibility,
        )
    if n_rows > 0:
        kernel, tiles = on_queries
        tile = choose(tiles, call)
        n_tiles = count_tiles(
            n_batches, n_queries, n_sequences, q_offsets, tile.block_m
        )
        kernel[(n_tiles * n_heads,)](
            *(grad_q, *inputs, *packed),
            **tile.constants(call),
            DIVISIBILITY=divisibility,
        )


def _launch_first(tensors, n_batches, sizes, strides, scale, softcap, window):
    """The launches of the first rung."""
    grad_q, grad_k, grad_v, p, grad_scores, grad, q, k, v, lse, delta = tensors
    n_heads, n_kv_heads, n_queries, n_keys, head_dim = sizes
    grad_strides, q_strides, k_strides = strides[:3], strides[3:6], strides[6:9]
    n_rows = n_batches * n_heads * n_queries

    def grid(n_heads, n_rows, n_cols):
        n_row_tiles = triton.cdiv(n_rows, FIRST_TILE["BLOCK_M"])
        n_col_tiles = triton.cdiv(n_cols, FIRST_TILE["BLOCK_N"])
        return (n_batches * n_heads * n_row_tiles * n_col_tiles,)

    if n_rows * n_keys > 0:
        attention_backward_scores_first_kernel[grid(n_heads, n_queries, n_keys)](
            *(p, grad_scores, grad, q, k, v, lse, delta, *sizes, *strides),
            *(scale, softcap, *window),
            **FIRST_TILE,
        )
    if n_rows > 0:
        attention_backward_queries_first_kernel[grid(n_heads, n_queries, head_dim)](
            *(grad_q, grad_scores, k, *sizes, *k_strides, scale, *window), **FIRST_TILE
        )
    if n_batches * n_keys * n_kv_heads > 0:
        attention_backward_keys_first_kernel[grid(n_kv_heads, n_keys, head_dim)](
            *(grad_k, grad_v, p, grad_scores, grad, q, *sizes),
            *(*grad_strides, *q_strides, scale, *window),
            **FIRST_TILE,
        )
