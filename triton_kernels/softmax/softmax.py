"""Softmax of every row of a matrix, and its backward.

  softmax:          out[row, :] = exp(x[row, :] - m) / sum(exp(x[row, :] - m)),
                    m = max(x[row, :])
  softmax_backward: out[row, :] = y[row, :] * (grad[row, :] - s),
                    s = sum(grad[row, :] * y[row, :]), y what softmax returned

Layout   out: (n_rows, n_cols), contiguous. x, grad, y: columns contiguous; row r of x
         begins at
         (r / rows_per_batch) * x_stride_batch + (r % rows_per_batch) * x_stride_row.
Traffic  reads and writes every element once as long as a row fits into the registers of
         a program (16384 columns, 32768 of float32; 24576 in the backward) or the L1
         (65536 of two bytes in the forward). Of a longer row what does not fit into the
         registers is read twice.
Limits   accumulates in float32. A row with NaN or +inf, or of -inf alone, is NaN.
Mirror   csrc/softmax/softmax.cu differs in softmax_long_kernel and
         softmax_backward_long_kernel, because Triton has neither shared memory to keep
         a row in nor clusters to share one: it reads a long row again, out of a cache
         that may still have it.
Source   Milakov & Gimelshein 2018, arXiv:1805.02867 (algorithm 2; 3 for long rows)
"""

import math
from typing import Any, NamedTuple

import triton
from torch import Tensor

from triton_kernels.common.device import current_device
from triton_kernels.common.table import (
    FIRST,
    LONGEST,
    CannotServeError,
    RowTile,
    Rung,
    choose_tile,
)
from triton_kernels.common.vec import VEC_BYTES
from triton_kernels.softmax.backward_first import softmax_backward_first_kernel
from triton_kernels.softmax.backward_long import softmax_backward_long_kernel
from triton_kernels.softmax.backward_twin import softmax_backward_kernel
from triton_kernels.softmax.cached import softmax_cached_kernel
from triton_kernels.softmax.first import softmax_first_kernel
from triton_kernels.softmax.long import softmax_long_kernel
from triton_kernels.softmax.twin import softmax_kernel

# Rows in registers: longest row, rows of a program, columns of a tile, warps.
TILES = (
    RowTile(64, 32, 64, 4),
    RowTile(256, 8, 256, 4),
    RowTile(512, 4, 512, 4),
    RowTile(1024, 1, 1024, 2),
    RowTile(2048, 1, 1024, 4),
    RowTile(4096, 1, 2048, 4),
    RowTile(16384, 1, 2048, 8),
    RowTile(32768, 1, 4096, 16, element_bytes=4),
)
# Two rows at once: a thread holds half as much of each.
BACKWARD_TILES = (
    RowTile(64, 32, 64, 4),
    RowTile(256, 8, 256, 4),
    RowTile(512, 4, 512, 4),
    RowTile(1024, 2, 1024, 4),
    RowTile(4096, 1, 1024, 4),
    RowTile(8192, 1, 2048, 8),
    RowTile(14336, 1, 2048, 16),
    RowTile(24576, 1, 8192, 32),
)
# Rows that begin within vectors: the kernels for long rows read them in vectors, unless
# they are this short.
LONGEST_UNEVEN_ROW_IN_REGISTERS = 1024
BACKWARD_LONGEST_UNEVEN_ROW_IN_REGISTERS = 2048
UNEVEN_TILES = (
    RowTile(4096, 1, 1024, 4),
    RowTile(16384, 1, 4096, 16),
    RowTile(32768, 1, 8192, 32),
)
# Rows that the L1 holds: longest row, 1 row of a program, columns of a tile, warps.
CACHED_TILES = (
    RowTile(32768, 1, 8192, 32, element_bytes=2),
    RowTile(65536, 1, 16384, 32, element_bytes=2),
)


class LongTile(NamedTuple):
    """A line of a table for rows of which a program keeps a part in registers.

    Attributes:
        max_cols: The longest row that it is for.
        kept: The columns that it keeps, a power of two.
        steps: How often its threads load at a time.
        kept_with_edges: The columns that it keeps where elements around a row's vectors
            take registers as well.
        steps_with_edges: How often its threads load at a time there.
        element_bytes: Of which dtypes; 0: all.
        arch: Of which architecture, such as 90; 0: the default.
    """

    max_cols: int
    kept: int
    steps: int
    kept_with_edges: int
    steps_with_edges: int = 2
    element_bytes: int = 0
    arch: int = 0


# As many threads as a program can have: the more, the more of a row they keep.
LONG_NUM_WARPS = 32
LONG_TILES = (
    LongTile(LONGEST, kept=32768, steps=4, kept_with_edges=16384, element_bytes=2),
    LongTile(LONGEST, kept=32768, steps=2, kept_with_edges=16384, element_bytes=4),
)
BACKWARD_LONG_TILES = (
    LongTile(4608, kept=1024, steps=1, kept_with_edges=1024, steps_with_edges=1),
    LongTile(32768, kept=8192, steps=1, kept_with_edges=4096, steps_with_edges=1),
    LongTile(65536, kept=16384, steps=1, kept_with_edges=4096, element_bytes=2),
    LongTile(LONGEST, kept=8192, steps=2, kept_with_edges=4096, element_bytes=2),
    LongTile(LONGEST, 8192, 2, 8192, steps_with_edges=1, element_bytes=4),
)
# Longer rows share as many programs as there are multiprocessors: a program for each
# took a fifth longer on an H200 (bfloat16, 131072 columns).
BACKWARD_MAX_COLS_OF_A_PROGRAM = 65536


def has_edges(element_bytes: int, divisibility: int, has_gaps: bool) -> bool:
    """Whether rows begin within vectors, and nothing lies between one and the next.

    Args:
        element_bytes: Of an element.
        divisibility: What divides the beginning of every row.
        has_gaps: Whether there is something between the rows of a tensor.
    """
    return divisibility % (VEC_BYTES // element_bytes) != 0 and not has_gaps


def long_constants(
    tile: LongTile, element_bytes: int, divisibility: int, edges: bool
) -> dict[str, Any]:
    """What a kernel for long rows is compiled for; `edges` is what has_edges says."""
    vec_size = VEC_BYTES // element_bytes
    # The columns of all threads: of each what it can load at a time, or two.
    divisor = vec_size if edges else divisibility
    return {
        "KEPT": tile.kept_with_edges if edges else tile.kept,
        "STEPS": tile.steps_with_edges if edges else tile.steps,
        "BLOCK_N": 32 * LONG_NUM_WARPS * max(2, min(divisor, vec_size)),
        "DIVISIBILITY": divisibility,
        "VEC_SIZE": vec_size if edges else 0,
        "num_warps": LONG_NUM_WARPS,
        "num_stages": 1,
        "enable_fp_fusion": True,
    }


def softmax(
    out: Tensor,
    x: Tensor,
    n_rows: int,
    n_cols: int,
    rows_per_batch: int,
    x_stride_batch: int,
    x_stride_row: int,
    rung: int,
) -> None:
    """Launches the kernel for rows of this length on the current device and stream."""
    arguments = (out, x, n_rows, n_cols, rows_per_batch, x_stride_batch, x_stride_row)
    element_bytes = x.element_size()
    divisibility = math.gcd(n_cols, x_stride_batch, x_stride_row, 16)
    has_gaps = x_stride_row != n_cols or rows_per_batch != n_rows
    edges = has_edges(element_bytes, divisibility, has_gaps)
    if rung == Rung.FIRST:
        softmax_first_kernel[(n_rows,)](*arguments, **FIRST)
    elif (
        rung == Rung.TWIN or not edges or n_cols <= LONGEST_UNEVEN_ROW_IN_REGISTERS
    ) and (tile := choose_tile(TILES, n_cols, element_bytes)):
        softmax_kernel[(triton.cdiv(n_rows, tile.block_m),)](
            *arguments, **tile.constants(n_cols), DIVISIBILITY=divisibility
        )
    elif rung == Rung.TWIN:
        raise CannotServeError(f"softmax_kernel: rows of {n_cols} columns are too long")
    elif tile := choose_tile(
        (*UNEVEN_TILES, *CACHED_TILES) if edges else CACHED_TILES, n_cols, element_bytes
    ):
        softmax_cached_kernel[(n_rows,)](
            *arguments,
            BLOCK_N=tile.block_n,
            DIVISIBILITY=divisibility,
            VEC_SIZE=VEC_BYTES // element_bytes if edges else 0,
            num_warps=tile.num_warps,
            num_stages=1,
            enable_fp_fusion=True,
        )
    else:
        long_tile = choose_tile(LONG_TILES, n_cols, element_bytes)
        assert long_tile
        softmax_long_kernel[(n_rows,)](
            *arguments, **long_constants(long_tile, element_bytes, divisibility, edges)
        )


def softmax_backward(
    out: Tensor,
    grad: Tensor,
    y: Tensor,
    n_rows: int,
    n_cols: int,
    rows_per_batch: int,
    grad_stride_batch: int,
    grad_stride_row: int,
    y_stride_batch: int,
    y_stride_row: int,
    rung: int,
) -> None:
    """Launches the kernel for rows of this length on the current device and stream."""
    strides = (grad_stride_batch, grad_stride_row, y_stride_batch, y_stride_row)
    arguments = (out, grad, y, n_rows, n_cols, rows_per_batch, *strides)
    element_bytes = y.element_size()
    divisibility = math.gcd(n_cols, *strides, 16)
    has_gaps = not grad_stride_row == y_stride_row == n_cols or rows_per_batch != n_rows
    edges = has_edges(element_bytes, divisibility, has_gaps)
    if rung == Rung.FIRST:
        softmax_backward_first_kernel[(n_rows,)](*arguments, **FIRST)
    elif (
        rung == Rung.TWIN
        or not edges
        or n_cols <= BACKWARD_LONGEST_UNEVEN_ROW_IN_REGISTERS
    ) and (tile := choose_tile(BACKWARD_TILES, n_cols, element_bytes)):
        softmax_backward_kernel[(triton.cdiv(n_rows, tile.block_m),)](
            *arguments, **tile.constants(n_cols), DIVISIBILITY=divisibility
        )
    elif rung == Rung.TWIN:
        raise CannotServeError(
            f"softmax_backward_kernel: rows of {n_cols} columns are too long"
        )
    else:
        long_tile = choose_tile(BACKWARD_LONG_TILES, n_cols, element_bytes)
        assert long_tile
        n_programs = n_rows
        if n_cols > BACKWARD_MAX_COLS_OF_A_PROGRAM:
            n_programs = min(n_rows, current_device().n_sms)
        softmax_backward_long_kernel[(n_programs,)](
            *arguments, **long_constants(long_tile, element_bytes, divisibility, edges)
        )
