"""The twin: a row stays in registers, so that every element is read once.

A program holds BLOCK_M rows, each in N_TILES tiles of BLOCK_N columns: together the
tiles need not be a power of two, as one has to be.
"""

import triton
import triton.language as tl

from triton_kernels.common.math import relu
from triton_kernels.common.rows import row_offset
from triton_kernels.common.tile import load_row
from triton_kernels.common.vec import known_multiple
from triton_kernels.norm.rows import load_weight, row_mean


@triton.jit
def norm_kernel(
    out_ptr,  # (n_rows, n_cols)
    mean_ptr,  # (n_rows), or None
    rstd_ptr,  # (n_rows)
    x_ptr,  # (n_rows, n_cols)
    weight_ptr,  # (n_cols), or None
    bias_ptr,  # (n_cols), or None
    n_rows,
    n_cols,
    rows_per_batch,
    x_stride_batch,
    x_stride_row,
    eps,
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

    # -- load: columns past the end become 0, which adds nothing
    x = load_row(x_ptr, cols, is_row, n_cols, N_TILES)
    # A program alone on its multiprocessor would wait for its first weight and bias; a
    # longer row leaves no registers for them.
    READS_AHEAD: tl.constexpr = BLOCK_N * N_TILES == 24576
    if READS_AHEAD:
        weight = load_weight(weight_ptr, cols, cols < n_cols, 1.0)
        bias = load_weight(bias_ptr, cols, cols < n_cols, 0.0)

    # -- mean: subtracted from x in its registers
    HAS_MEAN: tl.constexpr = mean_ptr is not None
    if HAS_MEAN:
        mean = row_mean(x, n_cols, N_TILES)
        differences = ()
        for i in tl.static_range(N_TILES):
            mask = is_row & (i * BLOCK_N + cols < n_cols)
            differences += (tl.where(mask, x[i] - mean, 0.0),)
        x = differences

    # -- variance: of the differences, whose own mean is the rounding error of the mean
    squares = ()
    for i in tl.static_range(N_TILES):
        squares += (x[i] * x[i],)
    correction, variance = 0.0, row_mean(squares, n_cols, N_TILES)
    if HAS_MEAN:
        correction = row_mean(x, n_cols, N_TILES)
        variance = relu(variance - correction * correction)
        tl.store(mean_ptr + rows, mean + correction, mask=is_row)
    rstd = tl.rsqrt(variance + eps)
    tl.store(rstd_ptr + rows, rstd, mask=is_row)

    # -- store: rounded once; read any earlier, weight and bias would occupy registers.
    # What the longest rows write leaves the caches first, so that those two stay there.
    STORES: tl.constexpr = "evict_first" if BLOCK_N * N_TILES == 32768 else ""
    for i in tl.static_range(N_TILES):
        tile_cols = i * BLOCK_N + cols
        is_col = tile_cols < n_cols
        if i > 0 or not READS_AHEAD:
            weight = load_weight(weight_ptr, tile_cols, is_col, 1.0)
            bias = load_weight(bias_ptr, tile_cols, is_col, 0.0)
        out = (x[i] - correction) * rstd * weight
        if HAS_MEAN:
            out += bias
        out = out.to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + tile_cols, out, is_row & is_col, eviction_policy=STORES)
