"""The twin: rows stay in registers, so that every element is read once.

A program holds BLOCK_M rows, each in N_TILES tiles of BLOCK_N columns: together the
tiles need not be a power of two, as one has to be.
"""

import triton
import triton.language as tl

from triton_kernels.common.math import fast_exp
from triton_kernels.common.rows import row_offset
from triton_kernels.common.tile import load_row, store_row
from triton_kernels.common.vec import known_multiple


@triton.jit
def softmax_kernel(
    out_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
    n_rows,
    n_cols,
    rows_per_batch,
    x_stride_batch,
    x_stride_row,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    N_TILES: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    # -- tile: a program owns one long row or several short ones
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.arange(0, BLOCK_N)[None, :]
    is_row = rows < n_rows
    x_ptr += row_offset(rows, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
    out_ptr += rows * n_cols

    # -- load: columns past the end become -inf, which exp maps to 0
    x = load_row(x_ptr, cols, is_row, n_cols, N_TILES, -float("inf"))

    # -- max: subtracted below, so that no exponential overflows
    maxima = x[0]
    for i in tl.static_range(1, N_TILES):
        maxima = tl.maximum(maxima, x[i])
    row_max = tl.max(maxima, axis=1, keep_dims=True)

    # -- sum: of the numerators
    numerator = ()
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in tl.static_range(N_TILES):
        numerator += (fast_exp(x[i] - row_max),)
        sums += numerator[i]
    row_sum = tl.sum(sums, axis=1, keep_dims=True)

    # -- store: one division for the row, one multiplication for every element
    inverse_sum = 1.0 / row_sum
    out = ()
    for i in tl.static_range(N_TILES):
        out += (numerator[i] * inverse_sum,)
    store_row(out_ptr, out, cols, is_row, n_cols, N_TILES)
