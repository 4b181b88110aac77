"""The twin: neighbouring columns of a row, or several short rows, in registers."""

import triton
import triton.language as tl

from triton_kernels.common.math import fast_exp, fast_reciprocal
from triton_kernels.common.rows import row_offset
from triton_kernels.common.vec import known_multiple


@triton.jit
def cross_entropy_backward_kernel(
    out_ptr,  # (n_rows, n_cols)
    grad_ptr,  # (n_rows)
    logits_ptr,  # (n_rows, n_cols)
    target_ptr,  # (n_rows)
    logsumexp_ptr,  # (n_rows)
    n_counted_ptr,  # (), or None where the loss is no mean
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
):
    # -- tile: a program owns neighbouring columns of one row, or several short rows
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    logits_stride_batch = known_multiple(logits_stride_batch, DIVISIBILITY)
    logits_stride_row = known_multiple(logits_stride_row, DIVISIBILITY)
    tiles_per_row = tl.cdiv(n_cols, BLOCK_N)
    first_row = (tl.program_id(0) // tiles_per_row).to(tl.int64) * BLOCK_M
    rows = first_row + tl.arange(0, BLOCK_M)[:, None]
    start = (tl.program_id(0) % tiles_per_row).to(tl.int64) * BLOCK_N
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
    if n_counted_ptr is not None:
        scale *= fast_reciprocal(tl.load(n_counted_ptr))
    scale = tl.where(is_counted, scale, 0.0)

    # -- load: nothing of a row that does not count
    x = tl.load(logits_ptr + cols, mask=mask & is_counted, other=0.0)

    # -- compute: the probability of each class, less what the target gives to it
    share = label_smoothing * inverse_n_cols  # of every class
    target_share = share + (1.0 - label_smoothing)
    probability = fast_exp(x.to(tl.float32) - logsumexp)
    out = scale * (probability - tl.where(cols == target_col, target_share, share))

    # -- store: rounded once
    tl.store(out_ptr + cols, out.to(out_ptr.dtype.element_ty), mask=mask)
