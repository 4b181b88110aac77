"""The first rung: a program owns a row, and walks over it twice."""

import triton
import triton.language as tl

from triton_kernels.common.math import fast_exp, finite_origin
from triton_kernels.common.rows import row_offset


@triton.jit
def cross_entropy_first_kernel(
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
    BLOCK_N: tl.constexpr,
):
    # -- tile: a program owns a row, in tiles of BLOCK_N columns
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row_offset(
        row, n_rows, rows_per_batch, logits_stride_batch, logits_stride_row
    )
    cols = tl.arange(0, BLOCK_N).to(tl.int64)

    # -- target: a row that does not count is not read; no class has a logit of NaN
    target = tl.load(target_ptr + row)
    is_counted = target != ignore_index
    is_class = is_counted & (target >= 0) & (target < n_cols)
    target_logit = tl.load(logits_ptr + target, mask=is_class, other=float("nan"))
    n_read = tl.where(is_counted, n_cols, 0).to(tl.int64)

    # -- max: subtracted below, so that no exponential overflows
    maxima = tl.full([BLOCK_N], -float("inf"), tl.float32)
    for start in range(0, n_read, BLOCK_N):
        mask = start + cols < n_cols
        x = tl.load(logits_ptr + start + cols, mask=mask, other=-float("inf"))
        maxima = tl.maximum(maxima, x.to(tl.float32))
    row_max = tl.max(maxima, axis=0)

    # -- sum: of the exponentials, and of what each logit lacks to the maximum
    origin = finite_origin(row_max)
    sums = tl.zeros([BLOCK_N], tl.float32)
    gaps = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, n_read, BLOCK_N):
        mask = start + cols < n_cols
        x = tl.load(logits_ptr + start + cols, mask=mask, other=-float("inf"))
        sums += fast_exp(x.to(tl.float32) - origin)
        gaps += tl.where(mask, origin - x.to(tl.float32), 0.0)
    row_sum, row_gap = tl.sum(sums, axis=0), tl.sum(gaps, axis=0)

    # -- loss: without smoothing the gaps, which may be inf, have no part in it
    loss = tl.log(row_sum) + (1.0 - label_smoothing) * (origin - target_logit)
    if label_smoothing > 0.0:
        loss += label_smoothing * inverse_n_cols * row_gap
    loss = tl.where(is_counted, loss, 0.0)

    # -- store: each loss, or the loss and whether it counts
    tl.store(logsumexp_ptr + row, origin + tl.log(row_sum))
    if loss_ptr is not None:
        tl.store(loss_ptr + row, loss.to(loss_ptr.dtype.element_ty))
    if partial_ptr is not None:
        tl.store(partial_ptr + 2 * row, loss)
        tl.store(partial_ptr + 2 * row + 1, is_counted.to(tl.float32))
