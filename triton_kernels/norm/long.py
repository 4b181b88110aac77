"""A row too long for registers: the first pass finds its statistics.

The second reads it again, out of the L1 cache, which the first has asked to keep it,
and writes the result.
"""

import triton
import triton.language as tl

from triton_kernels.common.math import relu
from triton_kernels.common.rows import row_offset
from triton_kernels.common.vec import known_multiple
from triton_kernels.norm.rows import load_weight, mean_of


@triton.jit
def load_columns(x_ptr, cols, n_left, EVICTION: tl.constexpr):
    """The columns of x that are among the n_left, and 0 for the others."""
    x = tl.load(x_ptr + cols, mask=cols < n_left, other=0.0, eviction_policy=EVICTION)
    return x.to(tl.float32)


@triton.jit
def norm_long_kernel(
    out_ptr,  # (n_rows, n_cols)
    mean_ptr,  # (n_rows), or None
    rstd_ptr,  # (n_rows)
    x_ptr,  # (n_rows, n_cols)
    weight_ptr,  # (n_cols), or None
    bias_ptr,  # (n_cols), or None
    n_rows,
    n_cols: tl.constexpr,
    rows_per_batch,
    x_stride_batch,
    x_stride_row,
    eps,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    """Each length of a row is compiled by itself.

    Only where the number of columns is known does the compiler have the loads of all
    tiles under way at the same time.
    """
    # -- tile: a program owns one row and walks over it in tiles of BLOCK_N columns; a
    # weight is read in vectors that are no longer than those of its row
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    row = tl.program_id(0).to(tl.int64)
    cols = tl.multiple_of(tl.arange(0, BLOCK_N), DIVISIBILITY)
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
    out_ptr += row * n_cols
    end = tl.cast(n_cols, tl.int64)  # or the step after the last could overflow

    # -- mean: of the first tile, which is good enough for the variance: if it holds one
    # in k of the columns, the variance is at least 1 / k of the squared distance to it,
    # so that no more than a factor of 1 + k is lost below
    HAS_MEAN: tl.constexpr = mean_ptr is not None
    mean = 0.0
    sums = tl.zeros([BLOCK_N], tl.float32)
    square_sums = tl.zeros([BLOCK_N], tl.float32)
    if HAS_MEAN:
        n_first: tl.constexpr = min(n_cols, BLOCK_N)
        x = load_columns(x_ptr, cols, n_first, "evict_last")
        mean = mean_of(tl.sum(x, axis=0), n_first)
        sums = tl.where(cols < n_first, x - mean, 0.0)
        square_sums = sums * sums

    # -- variance: of the differences, whose own mean is what is missing of the row's
    for start in range(BLOCK_N if HAS_MEAN else 0, end, BLOCK_N):
        x = load_columns(x_ptr + start, cols, end - start, "evict_last")
        if HAS_MEAN:
            x = tl.where(cols < end - start, x - mean, 0.0)
            sums += x
        square_sums += x * x
    variance = mean_of(tl.sum(square_sums, axis=0), n_cols)
    correction = 0.0
    if HAS_MEAN:
        correction = mean_of(tl.sum(sums, axis=0), n_cols)
        variance = relu(variance - correction * correction)
        tl.store(mean_ptr + row, mean + correction)
    rstd = tl.rsqrt(variance + eps)
    tl.store(rstd_ptr + row, rstd)

    # -- store: the second pass
    for start in range(0, end, BLOCK_N):
        mask = cols < end - start
        x = load_columns(x_ptr + start, cols, end - start, "evict_first")
        weight = load_weight(weight_ptr, start + cols, mask, 1.0)
        out = (x - mean - correction) * rstd * weight
        if HAS_MEAN:
            out += load_weight(bias_ptr, start + cols, mask, 0.0)
        tl.store(out_ptr + start + cols, out.to(out_ptr.dtype.element_ty), mask=mask)
