"""The second rung: no score leaves its program, as each is computed where it is needed.

From lse a probability is a single exponential: nothing of n_queries x n_keys has to be
kept, or written. Sums run over queries for grad_k and grad_v, over keys for grad_q. So
there are two launches, a program of which owns what it sums up, and walks over tiles of
the rest: seven products where five would do, but no atomics, and the same bits in every
call. Memory is read once for each tile that is owned. At the precision "ieee" threads
themselves multiply and add float32, from operands in shared memory.
"""

import triton
import triton.language as tl

from triton_kernels.attention.float_tiles import add_product, dot_of_rows
from triton_kernels.attention.scores import (
    cap,
    cap_derivative,
    seeing_queries,
    visible_keys,
)
from triton_kernels.attention.sequences import keys_of_sequence, queries_of_sequence
from triton_kernels.attention.tiled import exponential
from triton_kernels.attention.tiles import (
    contiguous_matrix,
    keys_of_program,
    load_tile,
    matrix_of,
    queries_of_owned_keys,
    sees,
    store_tile,
)
from triton_kernels.common.math import finite_origin
from triton_kernels.common.vec import known_multiple


@triton.jit
def through_softmax(
    scores, grad_p, lse, delta, is_seen, scale, softcap, dtype: tl.constexpr
):
    """Probabilities, and the gradients of scores from theirs; 0 where none is seen."""
    scores = cap(scores * scale, softcap)
    p = exponential(tl.where(is_seen, scores, -float("inf")) - lse, dtype)
    grad_scores = p * (grad_p - delta) * cap_derivative(scores, softcap)
    return p, tl.where(is_seen, grad_scores, 0.0)


@triton.jit
def attention_backward_keys_tiled_kernel(
    grad_k_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    grad_v_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    grad_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    q_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    k_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    v_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    lse_ptr,  # (n_batches, n_heads, n_queries)
    delta_ptr,  # (n_batches, n_heads, n_queries)
    n_heads,
    n_kv_heads,
    n_queries,
    n_keys,
    head_dim,
    grad_stride_batch,
    grad_stride_row,
    grad_stride_head,
    q_stride_batch,
    q_stride_row,
    q_stride_head,
    k_stride_batch,
    k_stride_row,
    k_stride_head,
    v_stride_batch,
    v_stride_row,
    v_stride_head,
    scale,
    softcap,
    window_left,
    window_right,
    n_sequences,
    q_offsets_ptr,  # (n_sequences + 1), or None
    k_offsets_ptr,  # (n_sequences + 1), or None
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    # -- tile: a program owns BLOCK_N keys, and walks over the queries that see them
    sequences = n_queries, n_keys, n_sequences, q_offsets_ptr, k_offsets_ptr
    sequence, kv_head, tile_key = keys_of_sequence(
        n_heads, n_kv_heads, sequences, BLOCK_N
    )
    n_queries, n_keys, q_batch, k_batch, _, first_key, statistic, per_head = sequence
    grad_strides = grad_stride_batch, grad_stride_row, grad_stride_head
    q_strides = q_stride_batch, q_stride_row, q_stride_head
    k_strides = k_stride_batch, k_stride_row, k_stride_head
    v_strides = v_stride_batch, v_stride_row, v_stride_head
    k_matrix = matrix_of(k_ptr, k_batch, kv_head, *k_strides, DIVISIBILITY)
    v_matrix = matrix_of(v_ptr, k_batch, kv_head, *v_strides, DIVISIBILITY)
    head_dim = known_multiple(head_dim, DIVISIBILITY)
    rows, keys = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    cols = tl.arange(0, HEAD_DIM)[None, :]
    window = window_left, window_right
    begin, end, _, _ = queries_of_owned_keys(
        tile_key, n_queries, n_keys, window, BLOCK_N
    )
    first_query, end_query = seeing_queries(
        tile_key + keys, n_queries, n_keys, window_left, window_right
    )

    # -- compute: over all heads that share the keys, and queries that see any of them
    grad_k = tl.zeros([BLOCK_N, HEAD_DIM], tl.float32)
    grad_v = tl.zeros([BLOCK_N, HEAD_DIM], tl.float32)
    n_sharing = n_heads // n_kv_heads
    for head in range(kv_head * n_sharing, (kv_head + 1) * n_sharing):
        grad_matrix = matrix_of(grad_ptr, q_batch, head, *grad_strides, DIVISIBILITY)
        q_matrix = matrix_of(q_ptr, q_batch, head, *q_strides, DIVISIBILITY)
        for start in range(begin, end, BLOCK_M):
            scores = dot_of_rows(
                *((k_matrix, tile_key, keys, n_keys), (q_matrix, start, rows, end)),
                *(head_dim, BLOCK_K),
            )
            grad_p = dot_of_rows(
                *((v_matrix, tile_key, keys, n_keys), (grad_matrix, start, rows, end)),
                *(head_dim, BLOCK_K),
            )
            row = statistic + head * per_head + start
            is_query = rows < tl.minimum(end - start, BLOCK_M).to(tl.int32)
            lse = tl.load(lse_ptr + row + rows, mask=is_query, other=0.0)
            delta = tl.load(delta_ptr + row + rows, mask=is_query, other=0.0)
            p, grad_scores = through_softmax(
                *(scores, grad_p, finite_origin(lse)[None, :], delta[None, :]),
                *(sees(first_query, end_query, start, rows), scale, softcap),
                q_ptr.dtype.element_ty,
            )
            grad = load_tile(grad_matrix, start, rows[:, None], cols, end, head_dim)
            grad_v = add_product(grad_v, p, grad)
            q = load_tile(q_matrix, start, rows[:, None], cols, end, head_dim)
            grad_k = add_product(grad_k, grad_scores, q)

    # -- store: rounded once; 0 for a key that no query sees
    place = first_key, kv_head, 1, n_kv_heads, head_dim
    grad_k_matrix = contiguous_matrix(grad_k_ptr, *place)
    grad_v_matrix = contiguous_matrix(grad_v_ptr, *place)
    keys = (tile_key + keys)[:, None]
    store_tile(grad_k_matrix, grad_k * scale, keys, cols, n_keys, head_dim)
    store_tile(grad_v_matrix, grad_v, keys, cols, n_keys, head_dim)


@triton.jit
def attention_backward_queries_tiled_kernel(
    grad_q_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    grad_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    q_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    k_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    v_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    lse_ptr,  # (n_batches, n_heads, n_queries)
    delta_ptr,  # (n_batches, n_heads, n_queries)
    n_heads,
    n_kv_heads,
    n_queries,
    n_keys,
    head_dim,
    grad_stride_batch,
    grad_stride_row,
    grad_stride_head,
    q_stride_batch,
    q_stride_row,
    q_stride_head,
    k_stride_batch,
    k_stride_row,
    k_stride_head,
    v_stride_batch,
    v_stride_row,
    v_stride_head,
    scale,
    softcap,
    window_left,
    window_right,
    n_sequences,
    q_offsets_ptr,  # (n_sequences + 1), or None
    k_offsets_ptr,  # (n_sequences + 1), or None
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    # -- tile: a program owns BLOCK_M queries, and walks over the keys that they see
    sequences = n_queries, n_keys, n_sequences, q_offsets_ptr, k_offsets_ptr
    sequence, head, tile_query = queries_of_sequence(n_heads, sequences, BLOCK_M)
    n_queries, n_keys, q_batch, k_batch, first_query, _, statistic, per_head = sequence
    kv_head = head // (n_heads // n_kv_heads)
    grad_strides = grad_stride_batch, grad_stride_row, grad_stride_head
    q_strides = q_stride_batch, q_stride_row, q_stride_head
    k_strides = k_stride_batch, k_stride_row, k_stride_head
    v_strides = v_stride_batch, v_stride_row, v_stride_head
    grad_matrix = matrix_of(grad_ptr, q_batch, head, *grad_strides, DIVISIBILITY)
    q_matrix = matrix_of(q_ptr, q_batch, head, *q_strides, DIVISIBILITY)
    k_matrix = matrix_of(k_ptr, k_batch, kv_head, *k_strides, DIVISIBILITY)
    v_matrix = matrix_of(v_ptr, k_batch, kv_head, *v_strides, DIVISIBILITY)
    head_dim = known_multiple(head_dim, DIVISIBILITY)
    rows, keys = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    cols = tl.arange(0, HEAD_DIM)[None, :]
    window = window_left, window_right
    begin, end, _, _ = keys_of_program(tile_query, n_queries, n_keys, window, BLOCK_M)
    first_key, end_key = visible_keys(
        tile_query + rows, n_queries, n_keys, window_left, window_right
    )
    queries = tile_query + rows
    statistics = statistic + head * per_head + queries
    lse = tl.load(lse_ptr + statistics, mask=queries < n_queries, other=0.0)
    delta = tl.load(delta_ptr + statistics, mask=queries < n_queries, other=0.0)

    # -- compute: over the keys that any of the queries sees
    grad_q = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    for start in range(begin, end, BLOCK_N):
        scores = dot_of_rows(
            *((q_matrix, tile_query, rows, n_queries), (k_matrix, start, keys, end)),
            *(head_dim, BLOCK_K),
        )
        grad_p = dot_of_rows(
            *((grad_matrix, tile_query, rows, n_queries), (v_matrix, start, keys, end)),
            *(head_dim, BLOCK_K),
        )
        _p, grad_scores = through_softmax(
            *(scores, grad_p, finite_origin(lse)[:, None], delta[:, None]),
            *(sees(first_key, end_key, start, keys), scale, softcap),
            q_ptr.dtype.element_ty,
        )
        k = load_tile(k_matrix, start, keys[:, None], cols, end, head_dim)
        grad_q = add_product(grad_q, grad_scores, k)

    # -- store: rounded once; 0 for a query that sees no key
    grad_q_matrix = contiguous_matrix(
        grad_q_ptr, first_query, head, 1, n_heads, head_dim
    )
    store_tile(
        grad_q_matrix, grad_q * scale, queries[:, None], cols, n_queries, head_dim
    )
