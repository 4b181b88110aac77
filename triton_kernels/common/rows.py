"""Kernels that work on rows: the mirror of rows.cuh."""

import triton
import triton.language as tl  # noqa: F401 (Triton's interpreter looks for it)


@triton.jit
def row_offset(row, n_rows, rows_per_batch, stride_batch, stride_row):
    """Where rows begin. Most tensors are one batch: they need no division."""
    if rows_per_batch == n_rows:
        offset = row * stride_row
    else:
        batch, row_in_batch = row // rows_per_batch, row % rows_per_batch
        offset = batch * stride_batch + row_in_batch * stride_row
    return offset


def tile_for(tiles: tuple[tuple[int, ...], ...], n_cols: int) -> tuple[int, ...]:
    """The rest of a table's first line that has places for n_cols; () if none has."""
    return next((tile[1:] for tile in tiles if n_cols <= tile[0]), ())
