"""How rows of both norms are cut up, and the launch that it takes."""

import math

import triton

from triton_kernels.common.table import (
    LONGEST,
    CannotServeError,
    RowTile,
    Rung,
    choose_tile,
)
from triton_kernels.norm.long import norm_long_kernel
from triton_kernels.norm.twin import norm_kernel

# Rows in registers: longest row, rows of a program, columns of a tile, warps. Short
# rows share a program; a warp with a row to itself waits for no other.
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
    RowTile(65536, 1, 8192, 32),
    RowTile(131072, 1, 16384, 32, element_bytes=2),
    RowTile(LONGEST, 1, 16384, 16, element_bytes=2),
    RowTile(LONGEST, 1, 4096, 16, element_bytes=4),
)
MEAN_LONG_TILES = (RowTile(32768, 1, 4096, 16, element_bytes=2), *LONG_TILES)
# Rows of single elements, whose addresses take registers: with a mean they are rows of
# more columns than these. Without, a program has an L1 to itself.
MOST_SINGLE_COLS = 16384
SINGLE_TILE = RowTile(LONGEST, 1, 8192, 16)
MEAN_SINGLE_TILE = RowTile(LONGEST, 1, 4096, 32)


def launch_norm(tensors, walk, eps, rung):
    """Launches what the tables choose on the current device and stream.

    `tensors` are those that the kernels take, and `walk` the numbers that follow, from
    n_rows to the last stride.
    """
    n_rows, n_cols, _, *strides = walk
    divisibility = math.gcd(n_cols, *strides, 16)
    element_bytes = tensors[0].element_size()
    has_mean = tensors[1] is not None
    is_single = divisibility == 1 and has_mean
    tile = choose_tile(NORM_TILES, n_cols, element_bytes)
    if tile and not (is_single and n_cols > MOST_SINGLE_COLS):
        norm_kernel[(triton.cdiv(n_rows, tile.block_m),)](
            *tensors, *walk, eps, **tile.constants(n_cols), DIVISIBILITY=divisibility
        )
        return
    if rung == Rung.TWIN:
        raise CannotServeError(f"norm_kernel: rows of {n_cols} columns are too long")
    long_tiles = MEAN_LONG_TILES if has_mean else LONG_TILES
    if divisibility == 1 and (has_mean or element_bytes == 4):
        tile = MEAN_SINGLE_TILE if has_mean else SINGLE_TILE
    else:
        tile = choose_tile(long_tiles, n_cols, element_bytes)
    assert tile
    options = {"num_warps": tile.num_warps, "enable_fp_fusion": True}
    norm_long_kernel[(n_rows,)](
        *tensors, *walk, eps, tile.block_n, divisibility, **options
    )
