"""Cross entropy of every row of a matrix of logits and the class that it should name.

  loss[row] = logsumexp(x) - (1 - s) * x[target[row]] - s * mean(x)
  grad_logits[row, :] = grad * (exp(x - logsumexp(x)) - (1 - s) * one_hot - s / n_cols)
  x = logits[row, :], s = label_smoothing, one_hot[col] = (col == target[row])

Layout   logits: columns contiguous; row r begins at (r / rows_per_batch) * stride_batch
         + (r % rows_per_batch) * stride_row. All else is contiguous; grad has a stride,
         which is 0 where there is one for all rows.
Traffic  forward reads every logit once, however long the row; backward reads and
         writes it once. A row that does not count is not read, but for the forward's
         first tile. The ceilings are the bandwidths of a read and of a copy.
Limits   accumulates in float32. A row with NaN or +inf, or of -inf alone, is NaN, and
         so is one whose target is no class. The gradient is as exact as float32 holds
         the logsumexp: to 2^-24 of it. Rows are added up in an order that depends on
         their number and length alone.
Mirror   csrc/cross_entropy/cross_entropy.cu
Source   Milakov & Gimelshein 2018, arXiv:1805.02867 (algorithm 3); label smoothing:
         Szegedy et al. 2015, arXiv:1512.00567
"""

import math

import triton

from triton_kernels.common.table import FIRST, LONGEST, RowTile, Rung, choose_tile
from triton_kernels.common.vec import VEC_BYTES
from triton_kernels.cross_entropy.backward_first import (
    cross_entropy_backward_first_kernel,
)
from triton_kernels.cross_entropy.backward_twin import cross_entropy_backward_kernel
from triton_kernels.cross_entropy.first import cross_entropy_first_kernel
from triton_kernels.cross_entropy.reduce import REDUCE, cross_entropy_reduce_kernel
from triton_kernels.cross_entropy.twin import cross_entropy_kernel

# The longest row, rows of a program, columns of a tile, warps. Short rows are one tile;
# of a long one each thread has 64 bytes in flight. A warp that has a row for itself
# waits for no other.
TILES = (
    RowTile(64, 16, 64, 4),
    RowTile(128, 8, 128, 4),
    RowTile(256, 4, 256, 4),
    RowTile(512, 4, 512, 4),
    RowTile(1024, 4, 1024, 4),
    RowTile(2048, 1, 512, 1, element_bytes=4),
    RowTile(8192, 1, 2048, 4, element_bytes=4),
    RowTile(65536, 1, 4096, 8, element_bytes=4),
    RowTile(LONGEST, 1, 8192, 16, element_bytes=4),
    RowTile(4096, 1, 1024, 1, element_bytes=2),
    RowTile(8192, 1, 4096, 4, element_bytes=2),
    RowTile(65536, 1, 8192, 8, element_bytes=2),
    RowTile(LONGEST, 1, 16384, 16, element_bytes=2),
)
BACKWARD_TILE_BYTES = 4096
BACKWARD_NUM_WARPS = 4


def cross_entropy(
    loss,
    logsumexp,
    n_counted,
    partial,
    logits,
    target,
    n_rows,
    n_cols,
    rows_per_batch,
    *strides,
    ignore_index,
    label_smoothing,
    mean,
    rung,
):
    """Launches the kernel for rows of this length on the current device and stream.

    Where the losses are added up, a second launch does that: `partial` has a place for
    each row, so for as many programs as a table may choose.
    """
    losses = None if partial is not None else loss
    tensors = (logsumexp, losses, partial, logits, target)
    scalars = (ignore_index, label_smoothing, 1.0 / max(n_cols, 1))
    arguments = (*tensors, n_rows, n_cols, rows_per_batch, *strides, *scalars)
    n_blocks = n_rows
    if n_rows > 0 and rung == Rung.FIRST:
        cross_entropy_first_kernel[(n_blocks,)](*arguments, **FIRST)
    elif n_rows > 0:
        tile = choose_tile(TILES, n_cols, logits.element_size())
        assert tile
        n_blocks = triton.cdiv(n_rows, tile.block_m)
        divisibility = math.gcd(n_cols, *strides, 16)
        vec_size = math.gcd(divisibility, VEC_BYTES // logits.element_size())
        cross_entropy_kernel[(n_blocks,)](
            *arguments,
            BLOCK_M=tile.block_m,
            BLOCK_N=tile.block_n,
            LANES=min(tile.block_n // vec_size, 32 * tile.num_warps),
            VEC_SIZE=vec_size,
            DIVISIBILITY=divisibility,
            SMOOTHED=label_smoothing != 0.0,
            num_warps=tile.num_warps,
            enable_fp_fusion=True,
        )
    if partial is not None:
        cross_entropy_reduce_kernel[(1,)](
            loss, n_counted, partial, n_blocks, int(mean), **REDUCE
        )


def cross_entropy_backward(
    out,
    grad,
    logits,
    target,
    logsumexp,
    n_counted,
    n_rows,
    n_cols,
    grad_stride,
    rows_per_batch,
    *strides,
    ignore_index,
    label_smoothing,
    rung,
):
    """Launches the rung's kernel on the current device and stream."""
    tensors = (out, grad, logits, target, logsumexp, n_counted)
    sizes = (n_rows, n_cols, grad_stride, rows_per_batch, *strides)
    scalars = (ignore_index, label_smoothing, 1.0 / max(n_cols, 1))
    if rung == Rung.FIRST:
        kernel = cross_entropy_backward_first_kernel[(n_rows,)]
        kernel(*tensors, *sizes, *scalars, **FIRST)
        return
    tile_size = BACKWARD_TILE_BYTES // out.element_size()
    block_n = min(tile_size, max(64, triton.next_power_of_2(n_cols)))
    block_m = tile_size // block_n
    n_blocks = triton.cdiv(n_rows, block_m) * triton.cdiv(n_cols, block_n)
    cross_entropy_backward_kernel[(n_blocks,)](
        *tensors,
        *sizes,
        *scalars,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        DIVISIBILITY=math.gcd(n_cols, *strides, 16),
        num_warps=BACKWARD_NUM_WARPS,
        enable_fp_fusion=True,
    )
