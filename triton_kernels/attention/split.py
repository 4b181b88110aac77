"""Few queries and long keys: programs share the keys.

Tiles of queries are too few to keep a GPU busy; attention_combine_kernel puts the parts
together. Reading k and v once bounds the time: 4096 keys of 8 heads of 128 columns in a
batch of 32 are 537 MB, or 125 us at 4.3 TB/s. So a tile has the queries of all heads
that share one of k and v. A part writes head_dim + 2 floats for a row, little as it has
eight keys or more for each row of the tile. cp.async brings two tiles of keys, of 64 KB
in all where head_dim is 128, while one is multiplied: 26 KB would hide the latency.
"""

import triton
import triton.language as tl

from triton_kernels.attention.combine import means_of
from triton_kernels.attention.scores import visible_keys
from triton_kernels.attention.tensor_cores import add_keys
from triton_kernels.attention.tiles import load_tile, matrix_of, sees
from triton_kernels.common.griddepcontrol import (
    griddepcontrol_launch_dependents,
    griddepcontrol_wait,
)
from triton_kernels.common.math import LOG2_E, finite_origin
from triton_kernels.common.vec import known_multiple


@triton.jit
def attention_split_kernel(
    out_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    lse_ptr,  # (n_batches, n_heads, n_queries)
    parts_ptr,  # (n_batches, n_heads, n_queries, n_splits, head_dim)
    statistics_ptr,  # (n_batches, n_heads, n_queries, n_splits, 2)
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
    n_splits,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    IS_PLAIN: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    # -- tile: a program owns BLOCK_M rows, and one of n_splits parts of the keys that
    # they see; row r is query r / sharing of head r % sharing, of those that share a
    # head of k and v
    sharing = n_heads // n_kv_heads
    n_rows = n_queries * sharing
    n_row_tiles = tl.cdiv(n_rows, BLOCK_M)
    index = tl.program_id(0).to(tl.int64)
    split, tile = index % n_splits, index // n_splits
    tile_row, matrix = tile % n_row_tiles * BLOCK_M, tile // n_row_tiles
    batch, kv_head = matrix // n_kv_heads, matrix % n_kv_heads
    k_matrix = matrix_of(
        k_ptr, batch, kv_head, k_stride_batch, k_stride_row, k_stride_head, DIVISIBILITY
    )
    v_matrix = matrix_of(
        v_ptr, batch, kv_head, v_stride_batch, v_stride_row, v_stride_head, DIVISIBILITY
    )
    head_dim = known_multiple(head_dim, DIVISIBILITY)
    rows, cols = tile_row + tl.arange(0, BLOCK_M), tl.arange(0, HEAD_DIM)
    keys = tl.arange(0, BLOCK_N)
    queries, heads = rows // sharing, kv_head * sharing + rows % sharing
    last_query = (tl.minimum(tile_row + BLOCK_M, n_rows) - 1) // sharing
    begin, _ = visible_keys(
        tile_row // sharing, n_queries, n_keys, window_left, window_right
    )
    _, end = visible_keys(last_query, n_queries, n_keys, window_left, window_right)
    # Multiples of 16 keys, so that parts may be left without any.
    n_multiples = tl.cdiv(tl.maximum(end - begin, 0), 16)
    split_size = tl.cdiv(n_multiples, n_splits) * 16
    split_begin = begin + split * split_size
    split_end = tl.minimum(split_begin + split_size, end)

    # Where scores are scaled by a positive number and no more, that is left to the
    # exponent.
    unit = scale if IS_PLAIN else 1.0
    exponent_unit = unit * LOG2_E

    # -- compute: a tile of keys at a time
    q_offsets = queries * known_multiple(q_stride_row, DIVISIBILITY)
    q_offsets += heads * known_multiple(q_stride_head, DIVISIBILITY)
    q_ptr += batch * known_multiple(q_stride_batch, DIVISIBILITY)
    # What puts parts together gets ready meanwhile, and waits. Where there is a single
    # part, the next launch would slow this one down.
    if n_splits > 1:
        griddepcontrol_launch_dependents()
    griddepcontrol_wait()
    q = tl.load(
        q_ptr + q_offsets[:, None] + cols[None, :],
        mask=(rows < n_rows)[:, None] & (cols < head_dim)[None, :],
        other=0.0,
    )
    sums = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    row_max = tl.full([BLOCK_M], -float("inf"), tl.float32)
    first_key, end_key = visible_keys(
        queries, n_queries, n_keys, window_left, window_right
    )
    for start in range(split_begin, split_end, BLOCK_N):
        k = load_tile(
            *(k_matrix, start, keys[None, :], cols[:, None], split_end, head_dim)
        )
        v = load_tile(
            *(v_matrix, start, keys[:, None], cols[None, :], split_end, head_dim)
        )
        is_seen = sees(first_key, tl.minimum(end_key, split_end), start, keys)
        sums, row_sum, row_max = add_keys(
            *((sums, row_sum, row_max), q, k, v, is_seen),
            *(scale, softcap, exponent_unit, IS_PLAIN),
        )

    # -- store: sums relative to the largest score of the part; of a single part the
    # means
    is_row, is_stored = rows < n_rows, (rows < n_rows)[:, None] & (cols < head_dim)
    lse_row = (batch * n_heads + heads) * n_queries + queries
    if n_splits == 1:
        griddepcontrol_launch_dependents()
        offsets = queries * out_stride_row + heads * out_stride_head
        out_ptr += batch * out_stride_batch
        means = means_of(sums, row_sum[:, None]).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + offsets[:, None] + cols, means, mask=is_stored)
        lse = finite_origin(row_max) * unit + tl.log(row_sum)
        tl.store(lse_ptr + lse_row, lse, mask=is_row)
    else:
        part = lse_row * n_splits + split
        sums = tl.where((row_sum == 0.0)[:, None], 0.0, sums)
        tl.store(parts_ptr + part[:, None] * head_dim + cols, sums, mask=is_stored)
        tl.store(statistics_ptr + part * 2, row_max, mask=is_row)
        tl.store(statistics_ptr + part * 2 + 1, row_sum, mask=is_row)
