"""Rows as tuples of tiles, which need not be a power of two together: see tile.cuh."""

import triton
import triton.language as tl


@triton.jit
def load_row(
    ptr, cols, is_row, n_cols, N_TILES: tl.constexpr, fill: tl.constexpr = 0.0
):
    """The tiles of rows that begin at ptr, in float32; columns past the end are `fill`.

    `cols` are those of the first tile, in one row.
    """
    tiles = ()
    for i in tl.static_range(N_TILES):
        tile_cols = i * cols.shape[1] + cols
        mask = is_row & (tile_cols < n_cols)
        tiles += (tl.load(ptr + tile_cols, mask=mask, other=fill).to(tl.float32),)
    return tiles


@triton.jit
def store_row(ptr, tiles, cols, is_row, n_cols, N_TILES: tl.constexpr):
    """Writes such tiles, rounded once; past the rows' end nothing is written."""
    for i in tl.static_range(N_TILES):
        tile_cols = i * cols.shape[1] + cols
        out = tiles[i].to(ptr.dtype.element_ty)
        tl.store(ptr + tile_cols, out, mask=is_row & (tile_cols < n_cols))
