"""A row too long for registers, but not for the L1, which is read from there again.

One pass over its tiles finds the maximum, one the sum, and a third writes the result.
The L1 holds what two-byte elements take; the sum needs no rescaling, as in one pass.
"""

import triton
import triton.language as tl

from triton_kernels.common.math import fast_exp
from triton_kernels.common.rows import row_offset, split_row
from triton_kernels.common.vec import known_multiple
from triton_kernels.softmax.long import load_columns


@triton.jit
def softmax_cached_kernel(
    out_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
    n_rows,
    n_cols: tl.constexpr,
    rows_per_batch,
    x_stride_batch,
    x_stride_row,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
    VEC_SIZE: tl.constexpr,
):
    """Each length of a row is compiled by itself, as in softmax_long_kernel."""
    # -- tile: a program owns a row and walks over it in tiles of BLOCK_N columns
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    row = tl.program_id(0).to(tl.int64)
    x_start = row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
    out_start = row * n_cols
    cols = tl.arange(0, BLOCK_N)

    # -- load: of rows that begin anywhere the elements around the vectors, which begin
    # at multiples of 16 bytes
    n_body = n_cols
    if VEC_SIZE > 0:
        x_start, n_body, edge_offsets, is_edge = split_row(out_start, n_cols, VEC_SIZE)
        edge = tl.load(x_ptr + edge_offsets, mask=is_edge, other=-float("inf"))
        edge = edge.to(tl.float32)
        out_edge_ptr = out_ptr + edge_offsets
        out_start = x_start
    x_ptr += x_start
    out_ptr += out_start

    # -- max: subtracted below, so that no exponential overflows
    maxima = tl.full([BLOCK_N], -float("inf"), tl.float32)
    for start in range(0, n_cols, BLOCK_N):
        x = load_columns(x_ptr + start, cols, n_body - start, "evict_last")
        maxima = tl.maximum(maxima, x)
    row_max = tl.max(maxima, axis=0)
    if VEC_SIZE > 0:
        row_max = tl.maximum(row_max, tl.max(edge, axis=0))

    # -- sum: of the numerators
    sums = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, n_cols, BLOCK_N):
        x = load_columns(x_ptr + start, cols, n_body - start, "evict_last")
        sums += fast_exp(x - row_max)
    row_sum = tl.sum(sums, axis=0)
    if VEC_SIZE > 0:
        edge_numerator = fast_exp(edge - row_max)
        row_sum += tl.sum(edge_numerator, axis=0)

    # -- store: the last read, after which nobody needs x any more
    inverse_sum = 1.0 / row_sum
    dtype = out_ptr.dtype.element_ty
    for start in range(0, n_cols, BLOCK_N):
        x = load_columns(x_ptr + start, cols, n_body - start, "evict_first")
        out = fast_exp(x - row_max) * inverse_sum
        tl.store(out_ptr + start + cols, out.to(dtype), mask=cols < n_body - start)
    if VEC_SIZE > 0:
        out = (edge_numerator * inverse_sum).to(dtype)
        tl.store(out_edge_ptr, out, mask=is_edge)
