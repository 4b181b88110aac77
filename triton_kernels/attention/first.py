"""The first rung: attention by its definition, in three launches.

They leave a matrix of n_queries x n_keys float32 in memory for each head. The first
launch writes the scores, the second reads and writes each several times over, and the
third reads them for every column of the result. For long sequences those bytes are far
more than q, k, v and out.
"""

import triton
import triton.language as tl

from triton_kernels.attention.scores import cap, lie_between, visible_keys
from triton_kernels.common.math import accurate_exp, finite_origin


@triton.jit
def tile_of_program(
    n_heads, n_rows, n_cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Batch, head, rows and columns of a result that a program computes."""
    n_row_tiles, n_col_tiles = tl.cdiv(n_rows, BLOCK_M), tl.cdiv(n_cols, BLOCK_N)
    index = tl.program_id(0).to(tl.int64)
    matrix = index // (n_row_tiles * n_col_tiles)
    tile = index % (n_row_tiles * n_col_tiles)
    rows = tile // n_col_tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile % n_col_tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    return matrix // n_heads, matrix % n_heads, rows, cols


@triton.jit
def dot_of_rows(a_ptr, b_ptr, a_mask, b_mask, head_dim, BLOCK_K: tl.constexpr):
    """The products of rows of a with rows of b, whose columns are neighbours."""
    products = tl.zeros([a_ptr.shape[0], b_ptr.shape[0]], tl.float32)
    for start in range(0, head_dim, BLOCK_K):
        cols = start + tl.arange(0, BLOCK_K)[None, :]
        a = tl.load(a_ptr[:, None] + cols, a_mask[:, None] & (cols < head_dim), 0.0)
        b = tl.load(b_ptr[:, None] + cols, b_mask[:, None] & (cols < head_dim), 0.0)
        a, b = a.to(tl.float32), b.to(tl.float32)
        products += tl.sum(a[:, None, :] * b[None, :, :], axis=2)
    return products


@triton.jit
def attention_scores_first_kernel(
    scores_ptr,  # (n_batches, n_heads, n_queries, n_keys)
    q_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    k_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    n_heads,
    n_kv_heads,
    n_queries,
    n_keys,
    head_dim,
    q_stride_batch,
    q_stride_row,
    q_stride_head,
    k_stride_batch,
    k_stride_row,
    k_stride_head,
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
    q_ptr += batch * q_stride_batch + head * q_stride_head + queries * q_stride_row
    k_ptr += batch * k_stride_batch + kv_head * k_stride_head + keys * k_stride_row
    is_query, is_key = queries < n_queries, keys < n_keys

    # -- compute: keys that the query does not see have no part in its softmax
    scores = dot_of_rows(q_ptr, k_ptr, is_query, is_key, head_dim, BLOCK_K)
    scores = cap(scores * scale, softcap)
    first, end = visible_keys(queries, n_queries, n_keys, window_left, window_right)
    is_seen = lie_between(first, keys, end)
    scores = tl.where(is_seen, scores, -float("inf"))

    # -- store: in float32
    rows = (batch * n_heads + head) * n_queries + queries
    scores_ptr += rows[:, None] * n_keys + keys[None, :]
    tl.store(scores_ptr, scores, mask=is_query[:, None] & is_key[None, :])


@triton.jit
def attention_softmax_first_kernel(
    scores_ptr,  # (n_batches * n_heads * n_queries, n_keys)
    lse_ptr,  # (n_batches * n_heads * n_queries)
    n_keys,
    BLOCK_N: tl.constexpr,
):
    # -- tile: a program owns a row, in tiles of BLOCK_N columns
    row = tl.program_id(0).to(tl.int64)
    scores_ptr += row * n_keys
    cols = tl.arange(0, BLOCK_N)

    # -- max: subtracted below, so that no exponential overflows
    maxima = tl.full([BLOCK_N], -float("inf"), tl.float32)
    for start in range(0, n_keys, BLOCK_N):
        mask = start + cols < n_keys
        scores = tl.load(scores_ptr + start + cols, mask=mask, other=-float("inf"))
        maxima = tl.maximum(maxima, scores)
    row_max = finite_origin(tl.max(maxima, axis=0))

    # -- sum: 0 for a query that sees no key
    sums = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, n_keys, BLOCK_N):
        mask = start + cols < n_keys
        scores = tl.load(scores_ptr + start + cols, mask=mask, other=-float("inf"))
        sums += accurate_exp(scores - row_max)
    row_sum = tl.sum(sums, axis=0)
    inverse = tl.where(row_sum == 0.0, 0.0, 1.0 / row_sum)

    # -- store: probabilities in place of the scores
    for start in range(0, n_keys, BLOCK_N):
        mask = start + cols < n_keys
        scores = tl.load(scores_ptr + start + cols, mask=mask, other=-float("inf"))
        probabilities = accurate_exp(scores - row_max) * inverse
        tl.store(scores_ptr + start + cols, probabilities, mask=mask)
    tl.store(lse_ptr + row, row_max + tl.log(row_sum))


@triton.jit
def attention_values_first_kernel(
    out_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    scores_ptr,  # (n_batches, n_heads, n_queries, n_keys)
    v_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    n_heads,
    n_kv_heads,
    n_queries,
    n_keys,
    head_dim,
    out_stride_batch,
    out_stride_row,
    out_stride_head,
    v_stride_batch,
    v_stride_row,
    v_stride_head,
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
    scores_ptr += rows[:, None] * n_keys
    v_ptr += batch * v_stride_batch + kv_head * v_stride_head + cols[None, :]
    is_query, is_col = queries < n_queries, cols < head_dim

    # -- compute: only over keys that the query sees, as 0 times inf is NaN
    first, end = visible_keys(queries, n_queries, n_keys, window_left, window_right)
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, n_keys, BLOCK_K):
        keys = start + tl.arange(0, BLOCK_K)
        is_seen = lie_between(first, keys, end)
        probabilities = tl.load(
            scores_ptr + keys[None, :], mask=is_query[:, None] & is_seen, other=0.0
        )
        v = tl.load(
            v_ptr + keys[:, None] * v_stride_row,
            mask=(keys < n_keys)[:, None] & is_col[None, :],
            other=0.0,
        )
        products = probabilities[:, :, None] * v.to(tl.float32)[None, :, :]
        sums += tl.sum(tl.where(is_seen[:, :, None], products, 0.0), axis=1)

    # -- store: rounded once
    out_ptr += batch * out_stride_batch + head * out_stride_head
    out_ptr += queries[:, None] * out_stride_row + cols[None, :]
    tl.store(
        out_ptr,
        sums.to(out_ptr.dtype.element_ty),
        mask=is_query[:, None] & is_col[None, :],
    )
