"""The first rung: the five products of the backward by their definition.

They leave two matrices of n_queries x n_keys float32 in memory for each head. The first
of the three launches writes the probabilities and the gradients of the scores, the
others read them for every column of the gradients of q, and of k and v.
"""

import triton
import triton.language as tl

from triton_kernels.attention.first import dot_of_rows, tile_of_program
from triton_kernels.attention.scores import (
    cap,
    cap_derivative,
    lie_between,
    seeing_queries,
    visible_keys,
)
from triton_kernels.common.math import accurate_exp, finite_origin


@triton.jit
def attention_backward_scores_first_kernel(
    p_ptr,  # (n_batches, n_heads, n_queries, n_keys)
    grad_scores_ptr,  # (n_batches, n_heads, n_queries, n_keys)
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # -- tile: a program owns BLOCK_M queries and BLOCK_N keys
    batch, head, queries, keys = tile_of_program(
        n_heads, n_queries, n_keys, BLOCK_M, BLOCK_N
    )
    kv_head = head // (n_heads // n_kv_heads)
    grad_ptr += batch * grad_stride_batch + head * grad_stride_head
    q_ptr += batch * q_stride_batch + head * q_stride_head
    k_ptr += batch * k_stride_batch + kv_head * k_stride_head
    v_ptr += batch * v_stride_batch + kv_head * v_stride_head
    rows = (batch * n_heads + head) * n_queries + queries
    is_query, is_key = queries < n_queries, keys < n_keys

    # -- compute: keys that the query does not see have no part in its softmax
    scores = dot_of_rows(
        q_ptr + queries * q_stride_row,
        k_ptr + keys * k_stride_row,
        *(is_query, is_key, head_dim, BLOCK_K),
    )
    grad_p = dot_of_rows(
        grad_ptr + queries * grad_stride_row,
        v_ptr + keys * v_stride_row,
        *(is_query, is_key, head_dim, BLOCK_K),
    )
    lse = finite_origin(tl.load(lse_ptr + rows, mask=is_query, other=0.0))
    delta = tl.load(delta_ptr + rows, mask=is_query, other=0.0)
    scores = cap(scores * scale, softcap)
    p = accurate_exp(scores - lse[:, None])
    grad_scores = p * (grad_p - delta[:, None]) * cap_derivative(scores, softcap)
    first, end = visible_keys(queries, n_queries, n_keys, window_left, window_right)
    is_seen = lie_between(first, keys, end)

    # -- store: in float32
    p, grad_scores = tl.where(is_seen, p, 0.0), tl.where(is_seen, grad_scores, 0.0)
    places = rows[:, None] * n_keys + keys[None, :]
    mask = is_query[:, None] & is_key[None, :]
    tl.store(p_ptr + places, p, mask=mask)
    tl.store(grad_scores_ptr + places, grad_scores, mask=mask)


@triton.jit
def attention_backward_queries_first_kernel(
    grad_q_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    grad_scores_ptr,  # (n_batches, n_heads, n_queries, n_keys)
    k_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    n_heads,
    n_kv_heads,
    n_queries,
    n_keys,
    head_dim,
    k_stride_batch,
    k_stride_row,
    k_stride_head,
    scale,
    window_left,
    window_right,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # -- tile: a program owns BLOCK_M queries and BLOCK_N columns
    batch, head, queries, cols = tile_of_program(
        n_heads, n_queries, head_dim, BLOCK_M, BLOCK_N
    )
    kv_head = head // (n_heads // n_kv_heads)
    rows = (batch * n_heads + head) * n_queries + queries
    k_ptr += batch * k_stride_batch + kv_head * k_stride_head + cols[None, :]
    is_query, is_col = queries < n_queries, cols < head_dim

    # -- compute: only over keys that the query sees, as 0 times inf is NaN
    first, end = visible_keys(queries, n_queries, n_keys, window_left, window_right)
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, n_keys, BLOCK_K):
        keys = start + tl.arange(0, BLOCK_K)
        is_seen = lie_between(first, keys, end)
        grad_scores = tl.load(
            grad_scores_ptr + rows[:, None] * n_keys + keys[None, :],
            mask=is_query[:, None] & is_seen,
            other=0.0,
        )
        k = tl.load(
            k_ptr + keys[:, None] * k_stride_row,
            mask=(keys < n_keys)[:, None] & is_col[None, :],
            other=0.0,
        )
        products = grad_scores[:, :, None] * k.to(tl.float32)[None, :, :]
        sums += tl.sum(tl.where(is_seen[:, :, None], products, 0.0), axis=1)

    # -- store: rounded once
    out_rows = (batch * n_queries + queries) * n_heads + head
    grad_q_ptr += out_rows[:, None] * head_dim + cols[None, :]
    grad_q = (sums * scale).to(grad_q_ptr.dtype.element_ty)
    tl.store(grad_q_ptr, grad_q, mask=is_query[:, None] & is_col[None, :])


@triton.jit
def attention_backward_keys_first_kernel(
    grad_k_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    grad_v_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    p_ptr,  # (n_batches, n_heads, n_queries, n_keys)
    grad_scores_ptr,  # (n_batches, n_heads, n_queries, n_keys)
    grad_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    q_ptr,  # (n_batches, n_queries, n_heads, head_dim)
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
    scale,
    window_left,
    window_right,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # -- tile: a program owns BLOCK_M keys and BLOCK_N columns
    batch, kv_head, keys, cols = tile_of_program(
        n_kv_heads, n_keys, head_dim, BLOCK_M, BLOCK_N
    )
    n_sharing = n_heads // n_kv_heads
    grad_ptr += batch * grad_stride_batch + cols[None, :]
    q_ptr += batch * q_stride_batch + cols[None, :]
    is_key, is_col = keys < n_keys, cols < head_dim

    # -- compute: over all heads that share the key, and the queries that see it
    first, end = seeing_queries(keys, n_queries, n_keys, window_left, window_right)
    grad_k = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    grad_v = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for sharing in range(n_sharing):
        head = kv_head * n_sharing + sharing
        for start in range(0, n_queries, BLOCK_K):
            queries = start + tl.arange(0, BLOCK_K)
            is_seen = lie_between(first, queries, end)
            rows = (batch * n_heads + head) * n_queries + queries
            places = rows[None, :] * n_keys + keys[:, None]
            mask = is_key[:, None] & is_seen
            grad_scores = tl.load(grad_scores_ptr + places, mask=mask, other=0.0)
            p = tl.load(p_ptr + places, mask=mask, other=0.0)
            inner = (queries < n_queries)[:, None] & is_col[None, :]
            q_rows = head * q_stride_head + queries[:, None] * q_stride_row
            grad_rows = head * grad_stride_head + queries[:, None] * grad_stride_row
            q = tl.load(q_ptr + q_rows, mask=inner, other=0.0)
            grad = tl.load(grad_ptr + grad_rows, mask=inner, other=0.0)
            products = grad_scores[:, :, None] * q.to(tl.float32)[None, :, :]
            grad_k += tl.sum(tl.where(is_seen[:, :, None], products, 0.0), axis=1)
            products = p[:, :, None] * grad.to(tl.float32)[None, :, :]
            grad_v += tl.sum(tl.where(is_seen[:, :, None], products, 0.0), axis=1)

    # -- store: rounded once
    out_rows = (batch * n_keys + keys) * n_kv_heads + kv_head
    places = out_rows[:, None] * head_dim + cols[None, :]
    mask = is_key[:, None] & is_col[None, :]
    dtype: tl.constexpr = grad_k_ptr.dtype.element_ty
    tl.store(grad_k_ptr + places, (grad_k * scale).to(dtype), mask=mask)
    tl.store(grad_v_ptr + places, grad_v.to(dtype), mask=mask)
