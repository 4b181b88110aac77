"""Rows: the reduced dimension is contiguous, or at least steps less than the others.

A program walks along one long row or several short ones.
"""

import triton
import triton.language as tl

from triton_kernels.common.rows import row_offset, split_row
from triton_kernels.common.vec import known_multiple
from triton_kernels.sum.twin import NUM_STAGES


@triton.jit
def sum_rows_kernel(
    out_ptr,  # (n_splits, n_outer, n_inner)
    x_ptr,  # (n_outer, n_reduced, n_inner)
    n_outer,
    n_reduced,
    n_inner,
    x_stride_outer,
    x_stride_reduced,
    x_stride_inner,
    split_size,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
    VEC_SIZE: tl.constexpr,
):
    """Rows that begin anywhere have vectors of VEC_SIZE elements, which else is 0."""
    # -- tile: a program owns one split of one long row or of several short ones
    x_stride_outer = known_multiple(x_stride_outer, DIVISIBILITY)
    x_stride_inner = known_multiple(x_stride_inner, DIVISIBILITY)
    n_rows = tl.cast(n_outer, tl.int64) * n_inner
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    is_row = rows < n_rows
    split = tl.program_id(1).to(tl.int64)
    split_start = split * split_size
    n_cols = tl.minimum(n_reduced - split_start, split_size)
    starts = row_offset(rows, n_rows, n_inner, x_stride_outer, x_stride_inner)
    starts += split_start * x_stride_reduced
    out_ptr += split * n_rows

    # -- accumulate: first the few elements before and behind the vectors of a row,
    # which begin at multiples of 16 bytes
    n_body = known_multiple(n_cols, DIVISIBILITY)
    if VEC_SIZE > 0:
        first_vecs, n_body, edge_offsets, is_edge = split_row(starts, n_cols, VEC_SIZE)
        edges = tl.load(x_ptr + edge_offsets, mask=is_row & is_edge, other=0.0)
        starts = first_vecs
    x_ptr += starts

    # Each element of a tile has a sum of its own. Every row has n_whole columns of
    # vectors at least, wherever it begins.
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    cols = tl.arange(0, BLOCK_N)[None, :]
    n_whole = tl.maximum(n_cols - 2 * VEC_SIZE, 0) // BLOCK_N * BLOCK_N
    for start in tl.range(0, n_whole, BLOCK_N, num_stages=NUM_STAGES):
        offsets = (start + cols) * x_stride_reduced
        sums += tl.load(x_ptr + offsets, mask=is_row, other=0.0).to(tl.float32)
    for start in range(n_whole, n_cols, BLOCK_N):
        offsets = (start + cols) * x_stride_reduced
        mask = is_row & (cols < n_body - start)
        sums += tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    # -- reduce: the sums of a row
    sum = tl.sum(sums, axis=1, keep_dims=True)
    if VEC_SIZE > 0:
        sum += tl.sum(edges.to(tl.float32), axis=1, keep_dims=True)

    # -- store: rounded once
    tl.store(out_ptr + rows, sum.to(out_ptr.dtype.element_ty), mask=is_row)
