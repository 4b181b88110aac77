"""The first rung: a program owns a row, and walks over it three times."""

import triton
import triton.language as tl

from triton_kernels.common.math import fast_exp
from triton_kernels.common.rows import row_offset


@triton.jit
def softmax_first_kernel(
    out_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
    n_rows,
    n_cols,
    rows_per_batch,
    x_stride_batch,
    x_stride_row,
    BLOCK_N: tl.constexpr,
):
    # -- tile: a program owns a row, in tiles of BLOCK_N columns
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
    out_ptr += row * n_cols
    cols = tl.arange(0, BLOCK_N).to(tl.int64)

    # -- max: subtracted below, so that no exponential overflows
    maxima = tl.full([BLOCK_N], -float("inf"), tl.float32)
    for start in range(0, tl.cast(n_cols, tl.int64), BLOCK_N):
        mask = start + cols < n_cols
        x = tl.load(x_ptr + start + cols, mask=mask, other=-float("inf"))
        maxima = tl.maximum(maxima, x.to(tl.float32))
    row_max = tl.max(maxima, axis=0)

    # -- sum: of the numerators
    sums = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, tl.cast(n_cols, tl.int64), BLOCK_N):
        mask = start + cols < n_cols
        x = tl.load(x_ptr + start + cols, mask=mask, other=-float("inf"))
        sums += fast_exp(x.to(tl.float32) - row_max)
    row_sum = tl.sum(sums, axis=0)

    # -- store: the numerators, computed again and divided by their sum
    for start in range(0, tl.cast(n_cols, tl.int64), BLOCK_N):
        mask = start + cols < n_cols
        x = tl.load(x_ptr + start + cols, mask=mask, other=-float("inf"))
        out = fast_exp(x.to(tl.float32) - row_max) / row_sum
        tl.store(out_ptr + start + cols, out.to(out_ptr.dtype.element_ty), mask=mask)
