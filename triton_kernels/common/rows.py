"""Kernels that work on rows: the mirror of rows.cuh."""

import triton
import triton.language as tl


@triton.jit
def row_offset(row, n_rows, rows_per_batch, stride_batch, stride_row):
    """Where rows begin. Most tensors are one batch, and are spared the division."""
    if rows_per_batch == n_rows:
        offset = row * stride_row
    else:
        batch, row_in_batch = row // rows_per_batch, row % rows_per_batch
        offset = batch * stride_batch + row_in_batch * stride_row
    return offset


@triton.jit
def split_row(start, n_cols, VEC_SIZE: tl.constexpr):
    """Splits a row that begins anywhere into whole vectors and what is around them.

    Vectors begin at multiples of VEC_SIZE elements. Returns where the row's first one
    begins, how many elements all have together, and where the elements before and
    behind them lie: 2 * VEC_SIZE, with a mask of those that exist.
    """
    first_vec = tl.cdiv(start, VEC_SIZE) * VEC_SIZE
    n_head = tl.minimum(first_vec - start, n_cols)
    n_body = (n_cols - n_head) // VEC_SIZE * VEC_SIZE
    edges = tl.arange(0, 2 * VEC_SIZE)
    is_head = edges < n_head
    edge_cols = tl.where(is_head, edges, n_cols - 2 * VEC_SIZE + edges)
    is_edge = is_head | (edge_cols >= n_head + n_body)
    return first_vec, n_body, start + edge_cols, is_edge
