"""Cross entropy of every row of a matrix of logits and the class that it should name.

  loss[row] = logsumexp(x) - (1 - s) * x[target[row]] - s * mean(x)
  grad_logits[row, :] = grad * (exp(x - logsumexp(x)) - (1 - s) * one_hot - s / n_cols)
  x = logits[row, :], s = label_smoothing, one_hot[col] = (col == target[row])

Layout   logits: columns contiguous; row r begins at (r / rows_per_batch) * stride_batch
         + (r % rows_per_batch) * stride_row. All else is contiguous; grad has a stride,
         which is 0 where there is one for all rows.
Traffic  forward reads every logit once, however long the row; backward reads and
         writes it once. Rows that are ignored are not read. The ceilings are the
         bandwidths of a read and of a copy.
Limits   accumulates in float32. A row with NaN or +inf, or of -inf alone, is NaN, and
         so is one whose target is no class. The gradient is as exact as float32 holds
         the logsumexp: to 2^-24 of it. Rows are added up in an order that depends on
         their number and length alone.
Mirror   csrc/cross_entropy/cross_entropy.cu
Source   Milakov & Gimelshein 2018, arXiv:1805.02867 (algorithm 3); label smoothing:
         Szegedy et al. 2015, arXiv:1512.00567
"""

import math
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.math import fast_exp, fast_reciprocal
from triton_kernels.common.rows import row_offset
from triton_kernels.common.vec import known_multiple

# Tiles of a long row that are on their way at a time: a thread has 64 bytes of one in
# registers, and more of them would go through shared memory.
NUM_STAGES = tl.constexpr(1)


@triton.jit
def finite_origin(max):
    """What the exponents of a row are relative to: its maximum.

    As long as nothing but -inf was seen it is 0: the sum stays 0, where -inf - -inf
    would make it NaN.
    """
    return tl.where(max == -float("inf"), 0.0, max)


@triton.jit
def sum_of_lanes(x):
    """The sums of the columns of each lane: [BLOCK_M, VECS, LANES, VEC_SIZE]."""
    return tl.sum(tl.sum(x, axis=3), axis=1)


@triton.jit
def add_tile(x, is_seen, n_seen, lane_max, lane_sum, lane_gap, SMOOTHED: tl.constexpr):
    """What lanes have seen, n_seen columns each, and what is_seen of one tile more.

    A lane's columns are those of one thread: its maximum takes no word of others, and
    its sum is rescaled once in a tile.
    """
    new_max = tl.maximum(lane_max, tl.max(tl.max(x, axis=3), axis=1))
    origin = finite_origin(new_max)
    x -= origin[:, None, :, None]
    lane_sum = lane_sum * fast_exp(lane_max - origin) + sum_of_lanes(fast_exp(x))
    if SMOOTHED:
        if is_seen is not None:
            x = tl.where(is_seen, x, 0.0)
        lane_gap += n_seen * (origin - finite_origin(lane_max)) - sum_of_lanes(x)
    return new_max, lane_sum, lane_gap


@triton.jit
def cross_entropy_kernel(
    logsumexp_ptr,  # (n_rows)
    loss_ptr,  # (n_rows), or None
    partial_ptr,  # (n_blocks, 2) if the loss is REDUCED, or None
    logits_ptr,  # (n_rows, n_cols)
    target_ptr,  # (n_rows)
    n_rows,
    n_cols,
    rows_per_batch,
    logits_stride_batch,
    logits_stride_row,
    ignore_index,
    label_smoothing,
    inverse_n_cols,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LANES: tl.constexpr,
    VEC_SIZE: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
    SMOOTHED: tl.constexpr,
    REDUCED: tl.constexpr,
):
    """A program walks along BLOCK_M rows in tiles of BLOCK_N columns."""
    # -- tile: a program owns one long row or several short ones
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    logits_stride_batch = known_multiple(logits_stride_batch, DIVISIBILITY)
    logits_stride_row = known_multiple(logits_stride_row, DIVISIBILITY)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.arange(0, BLOCK_N)[None, :]
    target = tl.load(target_ptr + rows, mask=rows < n_rows, other=ignore_index)
    is_counted = target != ignore_index
    is_class = (target >= 0) & (target < n_cols)
    offsets = row_offset(
        rows, n_rows, rows_per_batch, logits_stride_batch, logits_stride_row
    )
    # Triton 3.6 forgets in the branches of row_offset what divides the strides.
    logits_ptr += known_multiple(offsets, DIVISIBILITY)

    # -- target: on its way while the row is read; no class has a logit of NaN
    target_logit = tl.load(
        logits_ptr + target, mask=is_counted & is_class, other=float("nan")
    ).to(tl.float32)

    # -- max_sum: of the columns that each lane sees; the sum is rescaled as the maximum
    # grows, once in a tile
    VECS: tl.constexpr = BLOCK_N // (LANES * VEC_SIZE)
    TILE: tl.constexpr = [BLOCK_M, VECS, LANES, VEC_SIZE]
    lane_max = tl.full([BLOCK_M, LANES], -float("inf"), tl.float32)
    lane_sum = tl.zeros([BLOCK_M, LANES], tl.float32)
    lane_gap = tl.zeros([BLOCK_M, LANES], tl.float32)  # sum of max - x, if SMOOTHED
    # In 64 bits, or the last step could overflow. No row is read if none counts.
    n_read = tl.max(is_counted.to(tl.int64)) * n_cols
    n_whole = n_read // BLOCK_N * BLOCK_N
    for start in tl.range(0, n_whole, BLOCK_N, num_stages=NUM_STAGES):
        if BLOCK_M == 1:
            x = tl.load(logits_ptr + start + cols)
        else:
            x = tl.load(logits_ptr + start + cols, mask=is_counted, other=-float("inf"))
        x = tl.reshape(x.to(tl.float32), TILE)
        n_seen = tl.cast(start, tl.float32) / LANES
        lane_max, lane_sum, lane_gap = add_tile(
            x, None, n_seen, lane_max, lane_sum, lane_gap, SMOOTHED
        )
    if n_whole < n_read:
        mask = is_counted & (cols < n_cols - n_whole)
        x = tl.load(logits_ptr + n_whole + cols, mask=mask, other=-float("inf"))
        x = tl.reshape(x.to(tl.float32), TILE)
        vecs = tl.arange(0, VECS)[:, None] * LANES + tl.arange(0, LANES)
        is_seen = (vecs * VEC_SIZE < n_cols - n_whole)[None, :, :, None]
        n_seen = tl.cast(n_whole, tl.float32) / LANES
        lane_max, lane_sum, lane_gap = add_tile(
            x, is_seen, n_seen, lane_max, lane_sum, lane_gap, SMOOTHED
        )

    # -- combine: what the lanes of a row have seen
    row_max = tl.max(lane_max, axis=1, keep_dims=True)
    origin = finite_origin(row_max)
    row_sum = lane_sum * fast_exp(lane_max - origin)
    row_sum = tl.sum(row_sum, axis=1, keep_dims=True)
    log_sum = tl.log(row_sum)

    # -- loss: of what is missing to the maximum; such terms are positive and do not
    # cancel, however large the logits are
    loss = log_sum + (1.0 - label_smoothing) * (origin - target_logit)
    if SMOOTHED:
        lanes = tl.arange(0, LANES)[None, :]
        n_seen = (n_cols // VEC_SIZE + LANES - 1 - lanes) // LANES * VEC_SIZE
        lane_gap += n_seen.to(tl.float32) * (origin - finite_origin(lane_max))
        row_gap = tl.sum(lane_gap, axis=1, keep_dims=True)
        loss += label_smoothing * inverse_n_cols * row_gap
    loss = tl.where(is_counted, loss, 0.0)

    # -- store: each loss, or the sum of a program's and how many rows of it count
    tl.store(logsumexp_ptr + rows, origin + log_sum, mask=rows < n_rows)
    if REDUCED:
        partial_ptr += 2 * tl.program_id(0).to(tl.int64)
        tl.store(partial_ptr, tl.sum(loss))
        tl.store(partial_ptr + 1, tl.sum(is_counted.to(tl.float32)))
    else:
        tl.store(
            loss_ptr + rows, loss.to(loss_ptr.dtype.element_ty), mask=rows < n_rows
        )


@triton.jit
def cross_entropy_reduce_kernel(
    loss_ptr,  # ()
    n_counted_ptr,  # ()
    partial_ptr,  # (n_blocks, 2)
    n_blocks,
    mean,
    BLOCK_SIZE: tl.constexpr,
):
    """One program adds up what the programs of cross_entropy_kernel have left.

    The order is the same in every run.
    """
    # -- tile: the program owns everything
    n_values = 2 * tl.cast(n_blocks, tl.int64)
    offsets = tl.arange(0, BLOCK_SIZE)
    lanes = tl.zeros([BLOCK_SIZE], tl.float32)

    # -- accumulate: losses, and the rows that count
    for start in range(0, n_values, BLOCK_SIZE):
        mask = offsets < n_values - start
        lanes += tl.load(partial_ptr + start + offsets, mask=mask, other=0.0)

    # -- reduce: what the lanes have
    lane_loss, lane_n_counted = tl.split(tl.reshape(lanes, [BLOCK_SIZE // 2, 2]))
    loss, n_counted = tl.sum(lane_loss), tl.sum(lane_n_counted)

    # -- store: rounded once; the mean of no rows is 0 / 0
    loss = tl.where(mean, loss / n_counted, loss)
    tl.store(loss_ptr, loss.to(loss_ptr.dtype.element_ty))
    tl.store(n_counted_ptr, n_counted)


@triton.jit
def cross_entropy_backward_kernel(
    out_ptr,  # (n_rows, n_cols)
    grad_ptr,  # (n_rows)
    logits_ptr,  # (n_rows, n_cols)
    target_ptr,  # (n_rows)
    logsumexp_ptr,  # (n_rows)
    n_counted_ptr,  # (), or None unless the loss is a MEAN
    n_rows,
    n_cols,
    grad_stride,
    rows_per_batch,
    logits_stride_batch,
    logits_stride_row,
    ignore_index,
    label_smoothing,
    inverse_n_cols,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
    MEAN: tl.constexpr,
):
    # -- tile: a program owns neighbouring columns of one row, or several short rows
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    logits_stride_batch = known_multiple(logits_stride_batch, DIVISIBILITY)
    logits_stride_row = known_multiple(logits_stride_row, DIVISIBILITY)
    tiles_per_row = tl.cdiv(n_cols, BLOCK_N)
    block = tl.program_id(0) // tiles_per_row
    tile = tl.program_id(0) % tiles_per_row
    rows = block.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    start = tile.to(tl.int64) * BLOCK_N
    cols = tl.arange(0, BLOCK_N)[None, :]  # of the tile
    is_row = rows < n_rows
    mask = is_row & (cols < n_cols - start)
    logits_ptr += start + row_offset(
        rows, n_rows, rows_per_batch, logits_stride_batch, logits_stride_row
    )
    out_ptr += start + rows * n_cols

    # -- target: what all columns of the row share; no class has a gradient of NaN
    target = tl.load(target_ptr + rows, mask=is_row, other=ignore_index)
    is_counted = target != ignore_index
    is_class = (target >= 0) & (target < n_cols)
    is_in_tile = (target >= start) & (target < start + BLOCK_N)
    target_col = tl.where(is_in_tile, target - start, -1).to(tl.int32)
    logsumexp = tl.load(logsumexp_ptr + rows, mask=is_counted, other=0.0)
    scale = tl.load(
        grad_ptr + rows * grad_stride, mask=is_counted & is_class, other=float("nan")
    ).to(tl.float32)
    if MEAN:
        scale *= fast_reciprocal(tl.load(n_counted_ptr))
    scale = tl.where(is_counted, scale, 0.0)

    # -- load: nothing of a row that is ignored
    x = tl.load(logits_ptr + cols, mask=mask & is_counted, other=0.0).to(tl.float32)

    # -- compute: the probability of each class, less what the target gives to it
    difference = fast_exp(x - logsumexp) - label_smoothing * inverse_n_cols
    difference -= tl.where(cols == target_col, 1.0 - label_smoothing, 0.0)
    out = (scale * difference).to(out_ptr.dtype.element_ty)

    # -- store: rounded once
    tl.store(out_ptr + cols, out, mask=mask)


VEC_BYTES = 16
REDUCE_BLOCK_SIZE = 8192
REDUCE_NUM_WARPS = 16
BACKWARD_BLOCK_BYTES = 4096
BACKWARD_NUM_WARPS = 4


class Tile(NamedTuple):
    """Rows and columns, lanes that share a row, and warps of the program."""

    block_m: int
    block_n: int
    lanes: int
    num_warps: int


def choose_tile(
    rows_per_block: int, n_cols: int, vec_size: int, element_size: int
) -> Tile:
    """By the length of a row: short rows are one tile, of which a lane has one vector.

    A lane of a long row is a thread, which has 64 bytes in flight.
    """
    if rows_per_block > 1:
        block_n = max(64, triton.next_power_of_2(n_cols))
        return Tile(rows_per_block, block_n, block_n // vec_size, 4)
    num_warps = 4 if n_cols <= 8192 else 8 if n_cols <= 65536 else 16
    if n_cols * element_size <= 8192:
        num_warps = 1  # which waits for no other
    return Tile(1, num_warps * 32 * 64 // element_size, num_warps * 32, num_warps)


def cross_entropy(
    loss: Tensor,
    logsumexp: Tensor,
    n_counted: Tensor,
    partial: Tensor | None,
    logits: Tensor,
    target: Tensor,
    n_rows: int,
    n_cols: int,
    rows_per_batch: int,
    logits_stride_batch: int,
    logits_stride_row: int,
    ignore_index: int,
    label_smoothing: float,
    rows_per_block: int,
    mean: bool,
    rung: int,
) -> None:
    """Launches the kernel for rows of this length on the current device and stream.

    Where the losses are added up, a second launch does that.
    """
    element_size = logits.element_size()
    divisibility = math.gcd(n_cols, logits_stride_batch, logits_stride_row, 16)
    vec_size = math.gcd(divisibility, VEC_BYTES // element_size)
    tile = choose_tile(rows_per_block, n_cols, vec_size, element_size)
    n_blocks = triton.cdiv(n_rows, rows_per_block)
    if n_blocks > 0:
        cross_entropy_kernel[(n_blocks,)](
            logsumexp,
            None if partial is not None else loss,
            partial,
            logits,
            target,
            n_rows,
            n_cols,
            rows_per_batch,
            logits_stride_batch,
            logits_stride_row,
            ignore_index,
            label_smoothing,
            1.0 / max(n_cols, 1),
            BLOCK_M=tile.block_m,
            BLOCK_N=tile.block_n,
            LANES=tile.lanes,
            VEC_SIZE=vec_size,
            DIVISIBILITY=divisibility,
            SMOOTHED=label_smoothing != 0.0,
            REDUCED=partial is not None,
            num_warps=tile.num_warps,
            enable_fp_fusion=True,
        )
    if partial is not None:
        cross_entropy_reduce_kernel[(1,)](
            loss,
            n_counted,
            partial,
            n_blocks,
            mean,
            BLOCK_SIZE=REDUCE_BLOCK_SIZE,
            num_warps=REDUCE_NUM_WARPS,
            enable_fp_fusion=True,
        )


def cross_entropy_backward(
    out: Tensor,
    grad: Tensor,
    logits: Tensor,
    target: Tensor,
    logsumexp: Tensor,
    n_counted: Tensor | None,
    n_rows: int,
    n_cols: int,
    grad_stride: int,
    rows_per_batch: int,
    logits_stride_batch: int,
    logits_stride_row: int,
    ignore_index: int,
    label_smoothing: float,
    rung: int,
) -> None:
    """Launches cross_entropy_backward_kernel on the current device and stream."""
    block_size = BACKWARD_BLOCK_BYTES // out.element_size()
    block_n = min(block_size, max(64, triton.next_power_of_2(n_cols)))
    block_m = block_size // block_n
    n_blocks = triton.cdiv(n_rows, block_m) * triton.cdiv(n_cols, block_n)
    cross_entropy_backward_kernel[(n_blocks,)](
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
        logits_stride_batch,
        logits_stride_row,
        ignore_index,
        label_smoothing,
        1.0 / max(n_cols, 1),
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        DIVISIBILITY=math.gcd(n_cols, logits_stride_batch, logits_stride_row, 16),
        MEAN=n_counted is not None,
        num_warps=BACKWARD_NUM_WARPS,
        enable_fp_fusion=True,
    )
