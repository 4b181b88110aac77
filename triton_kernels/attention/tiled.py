"""The second rung: a single launch, in which no score leaves its program.

Softmax is computed online, tile by tile of keys: a row's maximum, the sum of its
exponentials and its weighted sum of values are those of the keys so far. Where a tile
has a larger score, what was summed relative to the old maximum is scaled down. So q and
out move once, and k and v once for each tile of queries. At the precision "ieee"
threads themselves multiply and add float32, from operands in shared memory.
"""

import triton
import triton.language as tl

from triton_kernels.attention.float_tiles import dot_of_rows
from triton_kernels.attention.scores import cap, visible_keys
from triton_kernels.attention.sequences import queries_of_sequence
from triton_kernels.attention.tiles import (
    keys_of_program,
    load_tile,
    matrix_of,
    sees,
    store_tile,
)
from triton_kernels.common.math import accurate_exp, fast_exp, finite_origin
from triton_kernels.common.vec import known_multiple


@triton.jit
def exponential(x, dtype: tl.constexpr):
    """e^x, as dtype resolves it."""
    return accurate_exp(x) if dtype == tl.float32 else fast_exp(x)


@triton.jit
def attention_tiled_kernel(
    out_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    lse_ptr,  # (n_batches, n_heads, n_queries)
    q_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    k_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    v_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    n_heads,
    n_kv_heads,
    n_queries,
    n_keys,
    head_dim,
    out_stride_batch,
    out_stride_row,
    out_stride_head,
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
    n_queries, n_keys, q_batch, k_batch, _, _, statistic, per_head = sequence
    kv_head = head // (n_heads // n_kv_heads)
    out_strides = out_stride_batch, out_stride_row, out_stride_head
    q_strides = q_stride_batch, q_stride_row, q_stride_head
    k_strides = k_stride_batch, k_stride_row, k_stride_head
    v_strides = v_stride_batch, v_stride_row, v_stride_head
    out = matrix_of(out_ptr, q_batch, head, *out_strides, DIVISIBILITY)
    q_matrix = matrix_of(q_ptr, q_batch, head, *q_strides, DIVISIBILITY)
    k_matrix = matrix_of(k_ptr, k_batch, kv_head, *k_strides, DIVISIBILITY)
    v_matrix = matrix_of(v_ptr, k_batch, kv_head, *v_strides, DIVISIBILITY)
    lse_ptr += statistic + head * per_head
    head_dim = known_multiple(head_dim, DIVISIBILITY)
    rows, cols = tl.arange(0, BLOCK_M), tl.arange(0, HEAD_DIM)[None, :]
    keys = tl.arange(0, BLOCK_N)
    window = window_left, window_right
    begin, end, _, _ = keys_of_program(tile_query, n_queries, n_keys, window, BLOCK_M)
    first_key, end_key = visible_keys(
        tile_query + rows, n_queries, n_keys, window_left, window_right
    )

    # -- compute: over the keys that any of the queries sees
    sums = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    row_max = tl.full([BLOCK_M], -float("inf"), tl.float32)
    for start in range(begin, end, BLOCK_N):
        scores = dot_of_rows(
            *((q_matrix, tile_query, rows, n_queries), (k_matrix, start, keys, end)),
            *(head_dim, BLOCK_K),
        )
        is_seen = sees(first_key, end_key, start, keys)
        scores = tl.where(is_seen, cap(scores * scale, softcap), -float("inf"))

        # Softmax: what the sums so far are relative to may have changed.
        old_max, row_max = row_max, tl.maximum(row_max, tl.max(scores, axis=1))
        origin = finite_origin(row_max)
        rescale = exponential(old_max - origin, q_ptr.dtype.element_ty)
        p = exponential(scores - origin[:, None], q_ptr.dtype.element_ty)
        row_sum = row_sum * rescale + tl.sum(p, axis=1)

        # A tile's values have sums of their own, like products in add_product.
        v = load_tile(v_matrix, start, keys[:, None], cols, end, head_dim)
        tile_sums = tl.dot(p, v.to(tl.float32), input_precision="ieee")
        sums = tl.fma(sums, tl.broadcast_to(rescale[:, None], sums.shape), tile_sums)

    # -- store: rounded once; 0 for a query that sees no key
    inverse = tl.where(row_sum == 0.0, 0.0, 1.0 / row_sum)
    queries = tile_query + rows
    store_tile(
        out, sums * inverse[:, None], queries[:, None], cols, n_queries, head_dim
    )
    lse = finite_origin(row_max) + tl.log(row_sum)
    tl.store(lse_ptr + queries, lse, mask=queries < n_queries)
