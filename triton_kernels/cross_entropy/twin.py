"""The twin: the lanes of a row walk along it, each with a maximum and a sum of its own.

So every logit is read once, however long the row. A lane's columns lie in one thread;
its sum is relative to the largest logit that it has seen, and is rescaled as that
grows, once in a tile.
"""

import triton
import triton.language as tl

from triton_kernels.common.math import fast_exp, finite_origin
from triton_kernels.common.rows import row_offset
from triton_kernels.common.vec import known_multiple


@triton.jit
def sum_of_lanes(x):
    """The sums of the columns of each lane: [BLOCK_M, VECS, LANES, VEC_SIZE]."""
    return tl.sum(tl.sum(x, axis=3), axis=1)


@triton.jit
def add_tile(x, n_left, n_seen, max, sum, gap, SMOOTHED: tl.constexpr):
    """Adds n_left columns of x, or all, to the n_seen that each lane has seen.

    To their maximum, the sum of exp(x - max) and, if SMOOTHED, that of max - x. Such
    gaps are positive and do not cancel, however large the logits are.
    """
    new_max = tl.maximum(max, tl.max(tl.max(x, axis=3), axis=1))
    origin = finite_origin(new_max)
    x -= origin[:, None, :, None]
    sum = sum * fast_exp(max - origin) + sum_of_lanes(fast_exp(x))
    if SMOOTHED:
        if n_left is not None:
            STEP: tl.constexpr = x.shape[2] * x.shape[3]
            col = tl.arange(0, x.shape[1])[None, :, None, None] * STEP
            x = tl.where(col < n_left[:, None, :, None], x, 0.0)
        gap += n_seen * (origin - finite_origin(max)) - sum_of_lanes(x)
    return new_max, sum, gap


@triton.jit
def cross_entropy_kernel(
    logsumexp_ptr,  # (n_rows)
    loss_ptr,  # (n_rows), or None
    partial_ptr,  # (n_blocks, 2) if the loss is reduced, or None
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
):
    # -- tile: a program owns one long row or several short ones; the first tile is what
    # the others, which are full, leave of a row, and does not wait for the target
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    logits_stride_batch = known_multiple(logits_stride_batch, DIVISIBILITY)
    logits_stride_row = known_multiple(logits_stride_row, DIVISIBILITY)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.arange(0, BLOCK_N)[None, :]
    is_row = rows < n_rows
    n_full = tl.maximum(n_cols - 1, 0) // BLOCK_N * BLOCK_N
    n_first = n_cols - n_full
    logits_ptr += row_offset(
        rows, n_rows, rows_per_batch, logits_stride_batch, logits_stride_row
    )
    n_left = n_first - tl.arange(0, LANES)[None, :] * VEC_SIZE
    mask = is_row & (cols < n_first)
    x = tl.load(logits_ptr + cols, mask=mask, other=-float("inf"))

    # -- target: on its way while the row is read; no class has a logit of NaN
    target = tl.load(target_ptr + rows, mask=is_row, other=ignore_index)
    is_counted = target != ignore_index
    is_class = is_counted & (target >= 0) & (target < n_cols)
    target_logit = tl.load(logits_ptr + target, mask=is_class, other=float("nan"))

    # -- max_sum: of the columns that each lane sees; of a row that does not count no
    # more than the first tile is read
    STEP: tl.constexpr = LANES * VEC_SIZE
    TILE: tl.constexpr = [BLOCK_M, BLOCK_N // STEP, LANES, VEC_SIZE]
    lane_max = tl.full([BLOCK_M, LANES], -float("inf"), tl.float32)
    lane_sum = tl.zeros([BLOCK_M, LANES], tl.float32)
    lane_gap = tl.zeros([BLOCK_M, LANES], tl.float32)
    x = tl.reshape(x.to(tl.float32), TILE)
    lane_max, lane_sum, lane_gap = add_tile(
        x, n_left, 0.0, lane_max, lane_sum, lane_gap, SMOOTHED
    )
    n_seen = ((n_left + STEP - 1) // STEP * VEC_SIZE).to(tl.float32)
    n_read = tl.max(is_counted.to(tl.int64)) * n_cols
    # One stage: more of them would take another way, through shared memory.
    for start in tl.range(n_first, n_read, BLOCK_N, num_stages=1):
        x = tl.reshape(tl.load(logits_ptr + start + cols).to(tl.float32), TILE)
        lane_max, lane_sum, lane_gap = add_tile(
            x, None, n_seen, lane_max, lane_sum, lane_gap, SMOOTHED
        )
        n_seen += BLOCK_N // LANES

    # -- combine: what the lanes of a row have seen
    row_max = tl.max(lane_max, axis=1, keep_dims=True)
    origin = finite_origin(row_max)
    lane_sum *= fast_exp(lane_max - origin)
    row_sum = tl.sum(lane_sum, axis=1, keep_dims=True)
    log_sum = tl.log(row_sum)

    # -- loss: of what is missing to the maximum
    loss = log_sum + (1.0 - label_smoothing) * (origin - target_logit)
    if SMOOTHED:
        lane_gap += n_seen * (origin - finite_origin(lane_max))
        row_gap = tl.sum(lane_gap, axis=1, keep_dims=True)
        loss += label_smoothing * inverse_n_cols * row_gap
    loss = tl.where(is_counted, loss, 0.0)

    # -- store: each loss, or the sum of a program's and how many rows of it count
    logsumexp = tl.where(is_counted, origin + log_sum, -float("inf"))
    tl.store(logsumexp_ptr + rows, logsumexp, mask=is_row)
    if loss_ptr is not None:
        tl.store(loss_ptr + rows, loss.to(loss_ptr.dtype.element_ty), mask=is_row)
    if partial_ptr is not None:
        partial_ptr += 2 * tl.program_id(0).to(tl.int64)
        tl.store(partial_ptr, tl.sum(loss))
        tl.store(partial_ptr + 1, tl.sum(is_counted.to(tl.float32)))
