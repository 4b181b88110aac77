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
         registers is read twice; in the backward only if rows begin anywhere, as
         programs share the others and read them once.
Limits   accumulates in float32. A row with NaN or +inf, or of -inf alone, is NaN.
Mirror   csrc/softmax/softmax.cu differs in softmax_long_kernel and
         softmax_backward_long_kernel, because Triton has neither shared memory to keep
         a row in nor clusters to share one: it reads a long row again, out of a cache
         that may still have it, or, in softmax_backward_shared_kernel, shares it among
         programs that pass their sums on through global memory.
Source   Milakov & Gimelshein 2018, arXiv:1805.02867 (algorithm 2; 3 for long rows)
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import triton

from triton_kernels.common.share import launch_shared
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
from triton_kernels.softmax.backward_shared import softmax_backward_shared_kernel
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
    RowTile(8192, 1, 2048, 8),
    RowTile(12288, 1, 2048, 8, element_bytes=4),
    RowTile(16384, 1, 2048, 8),
    RowTile(32768, 1, 4096, 16, element_bytes=4),
)
# Two rows at once: a thread holds half as much of each.
BACKWARD_TILES = (
    RowTile(64, 32, 64, 4),
    RowTile(256, 8, 256, 4),
    RowTile(512, 4, 512, 4),
    RowTile(1024, 2, 1024, 4),
    RowTile(2048, 1, 1024, 4),
    RowTile(4096, 1, 1024, 4),
    RowTile(8192, 1, 2048, 8),
    RowTile(14336, 1, 2048, 16),
    RowTile(24576, 1, 8192, 32),
)


class LongTile(NamedTuple):
    """A line of a table for rows that are not held in registers as a whole."""

    max_cols: int  # the longest row that it is for
    constants: dict[str, int]  # for the kernel, beside what is the same for all
    element_bytes: int = 0  # of which dtypes; 0: all
    arch: int = 0  # of which architecture, such as 90; 0: the default


# Rows that the L1 holds.
CACHED_TILES = (
    LongTile(32768, {"BLOCK_N": 8192}),
    LongTile(65536, {"BLOCK_N": 16384}, element_bytes=2),
)
UNEVEN_CACHED_TILES = (
    LongTile(12288, {"BLOCK_N": 4096, "num_warps": 8}),
    LongTile(24576, {"BLOCK_N": 4096, "num_warps": 16}),
    LongTile(32768, {"BLOCK_N": 32768}, element_bytes=4),
    CACHED_TILES[1],
)
# Longer ones, of which KEPT columns stay in registers: fewer of uneven ones, where the
# elements around their vectors take registers as well.
LONG_TILES = (
    LongTile(LONGEST, {"KEPT": 32768, "STEPS": 4}, element_bytes=2),
    LongTile(LONGEST, {"KEPT": 32768, "STEPS": 2}, element_bytes=4),
)
UNEVEN_LONG_TILES = (LongTile(LONGEST, {"KEPT": 16384, "STEPS": 2}),)
BACKWARD_UNEVEN_LONG_TILES = (
    LongTile(32768, {"KEPT": 4096, "STEPS": 1}),
    LongTile(LONGEST, {"KEPT": 4096, "STEPS": 2}, element_bytes=2),
    LongTile(LONGEST, {"KEPT": 8192, "STEPS": 1}, element_bytes=4),
)
# Even rows too long for a program, in parts of these columns: programs share them.
BACKWARD_SHARED_TILES = (
    RowTile(LONGEST, 1, 8192, 8, element_bytes=2),
    RowTile(LONGEST, 1, 4096, 8, element_bytes=4),
)

# As many threads as a program can have: the more, the more of a row they keep.
LONG_NUM_WARPS = 32

# A call takes the first kernel whose table has a line for its rows. Even rows begin at
# multiples of a vector. Uneven ones have nothing between one and the next: those of
# more than 8192 columns (12288 of float32 in the forward) are read in vectors that
# begin within them.
Tables = Sequence[tuple[Any, Sequence[RowTile | LongTile]]]
EVEN: Tables = (
    (softmax_kernel, TILES),
    (softmax_cached_kernel, CACHED_TILES),
    (softmax_long_kernel, LONG_TILES),
)
UNEVEN: Tables = (
    (softmax_kernel, TILES[:8]),
    (softmax_cached_kernel, UNEVEN_CACHED_TILES),
    (softmax_long_kernel, UNEVEN_LONG_TILES),
)
BACKWARD_EVEN: Tables = (
    (softmax_backward_kernel, BACKWARD_TILES),
    (softmax_backward_shared_kernel, BACKWARD_SHARED_TILES),
)
BACKWARD_UNEVEN: Tables = (
    (softmax_backward_kernel, BACKWARD_TILES[:7]),
    (softmax_backward_long_kernel, BACKWARD_UNEVEN_LONG_TILES),
)


def choose(
    even: Tables,
    uneven: Tables,
    rung: int,
    element_bytes: int,
    n_rows: int,
    n_cols: int,
    rows_per_batch: int,
    *strides: int,
) -> tuple[Any, int, dict[str, Any]]:
    """Which kernel serves a call, in how many programs, and what it is compiled for."""
    vec_size = VEC_BYTES // element_bytes
    divisibility = math.gcd(n_cols, *strides, 16)
    has_gaps = rows_per_batch != n_rows or any(each != n_cols for each in strides[1::2])
    is_uneven = divisibility % vec_size != 0 and not has_gaps
    kernels = even[:1] if rung == Rung.TWIN else uneven if is_uneven else even
    for kernel, table in kernels:
        tile = choose_tile(table, n_cols, element_bytes)
        if isinstance(tile, RowTile):
            constants = tile.constants(n_cols) | {"DIVISIBILITY": divisibility}
            return kernel, triton.cdiv(n_rows, tile.block_m), constants
        if tile:
            # The columns of all threads: of each what it can load at a time, or two.
            lane_size = vec_size if is_uneven else min(max(2, divisibility), vec_size)
            constants = {
                "BLOCK_N": 32 * LONG_NUM_WARPS * lane_size,
                "DIVISIBILITY": divisibility,
                "VEC_SIZE": vec_size if is_uneven else 0,
                "num_warps": LONG_NUM_WARPS,
                "num_stages": 1,
                "enable_fp_fusion": True,
            }
            return kernel, n_rows, constants | tile.constants
    raise CannotServeError(f"{kernel.__name__}: rows of {n_cols} columns are too long")


def softmax(out, x, n_rows, n_cols, rows_per_batch, *strides, rung):
    """Launches the kernel for rows of this length on the current device and stream."""
    rows = (n_rows, n_cols, rows_per_batch, *strides)
    if rung == Rung.FIRST:
        softmax_first_kernel[(n_rows,)](out, x, *rows, **FIRST)
        return
    kernel, n_programs, constants = choose(EVEN, UNEVEN, rung, x.element_size(), *rows)
    kernel[(n_programs,)](out, x, *rows, **constants)


def softmax_backward(out, grad, y, n_rows, n_cols, rows_per_batch, *strides, rung):
    """Launches the kernel for rows of this length on the current device and stream."""
    rows = (n_rows, n_cols, rows_per_batch, *strides)
    if rung == Rung.FIRST:
        softmax_backward_first_kernel[(n_rows,)](out, grad, y, *rows, **FIRST)
        return
    kernel, n_programs, constants = choose(
        BACKWARD_EVEN, BACKWARD_UNEVEN, rung, y.element_size(), *rows
    )
    if kernel is softmax_backward_shared_kernel:
        launch_shared(kernel, (out,), (grad, y), rows, constants, n_rows)
    elif kernel is softmax_backward_long_kernel:
        del constants["DIVISIBILITY"]  # uneven rows have no strides
        kernel[(n_programs,)](out, grad, y, n_cols, **constants)
    else:
        kernel[(n_programs,)](out, grad, y, *rows, **constants)
