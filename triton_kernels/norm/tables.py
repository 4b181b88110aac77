"""How rows of both norms are cut up, and the launch that it takes."""

import math

import triton
from torch import Tensor

from triton_kernels.common.table import (
    LONGEST,
    CannotServeError,
    RowTile,
    Rung,
    choose_tile,
)
from triton_kernels.norm.long import norm_long_kernel
from triton_kernels.norm.twin import norm_kernel

# Rows in registers: longest row, rows of a program, columns of a tile, warps. Short rows
# share a program; a warp with a row to itself waits for no other.
NORM_TILES = (
    RowTile(64, 32, 64, 4),
    RowTile(256, 16, 64, 4, element_bytes=2),
    RowTile(768, 8, 128, 4, element_bytes=2),
    RowTile(1024, 1, 1024, 1, element_bytes=2),
    RowTile(2048, 1, 512, 2, element_bytes=2),
    RowTile(8192, 1, 1024, 4, element_bytes=2),
    RowTile(12288, 1, 2048, 8, element_bytes=2),
    RowTile(16384, 1, 4096, 16, element_bytes=2),
    RowTile(512, 8, 64, 4, element_bytes=4),
    RowTile(2048, 1, 1024, 4, element_bytes=4),
    RowTile(8192, 1, 2048, 8, element_bytes=4),
    RowTile(16384, 1, 2048, 16, element_bytes=4),
    RowTile(32768, 1, 8192, 16, element_bytes=4),
)

# Rows that are read twice, in tiles of these columns. Few programs share a
# multiprocessor, and so their rows the L1 cache; the longest do not fit anyway.
LONG_TILES = (
    RowTile(32768, 1, 4096, 16, element_bytes=2),
    RowTile(65536, 1, 8192, 32),
    RowTile(131072, 1, 16384, 32, element_bytes=2),
    RowTile(LONGEST, 1, 16384, 16, element_bytes=2),
    RowTile(LONGEST, 1, 4096, 16, element_bytes=4),
)
# Elements that come one by one have an address in registers each.
MOST_SINGLE_COLS, MOST_SINGLE_WARPS = 4096, 16


def launch_norm(
    out: Tensor,
    mean: Tensor | None,
    rstd: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    n_rows: int,
    n_cols: int,
    rows_per_batch: int,
    x_stride_batch: int,
    x_stride_row: int,
    eps: float,
    rung: int,
) -> None:
    """Launches what the tables choose on the current device and stream."""
    strides = (x_stride_batch, x_stride_row)
    tensors = (out, mean, rstd, x, weight, bias)
    arguments = (*tensors, n_rows, n_cols, rows_per_batch, *strides, eps)
    divisibility = math.gcd(n_cols, *strides, 16)
    if tile := choose_tile(NORM_TILES, n_cols, x.element_size()):
        norm_kernel[(triton.cdiv(n_rows, tile.block_m),)](
            *arguments, **tile.constants(n_cols), DIVISIBILITY=divisibility
        )
        return
    if rung == Rung.TWIN:
        raise CannotServeError(f"norm_kernel: rows of {n_cols} columns are too long")
    tile = choose_tile(LONG_TILES, n_cols, x.element_size())
    assert tile
    is_single = divisibility == 1
    norm_long_kernel[(n_rows,)](
        *arguments,
        BLOCK_N=min(tile.block_n, MOST_SINGLE_COLS) if is_single else tile.block_n,
        DIVISIBILITY=divisibility,
        num_warps=min(tile.num_warps, MOST_SINGLE_WARPS)
        if is_single
        else tile.num_warps,
        enable_fp_fusion=True,
    )
