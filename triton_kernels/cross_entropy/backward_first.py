"""The first rung: a program owns a row, in tiles of neighbouring columns.

A gradient asks nothing of the other columns, as the forward has left the logsumexp.
"""

import triton
import triton.language as tl

from triton_kernels.common.math import fast_exp
from triton_kernels.common.rows import row_offset


@triton.jit
def cross_entropy_backward_first_kernel(
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
    BLOCK_N: tl.constexpr,
):
    # -- tile: a program owns a row
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row_offset(
        row, n_rows, rows_per_batch, logits_stride_batch, logits_stride_row
    )
    out_ptr += row * n_cols
    cols = tl.arange(0, BLOCK_N).to(tl.int64)

    # -- target: what all columns of the row share; no class has a gradient of NaN
    target = tl.load(target_ptr + row)
    is_counted = target != ignore_index
    is_class = (target >= 0) & (target < n_cols)
    n_read = tl.where(is_counted, n_cols, 0)
    logsumexp = tl.load(logsumexp_ptr + row)
    grad = tl.load(grad_ptr + row * grad_stride)
    scale = tl.where(is_class, grad.to(tl.float32), float("nan"))
    if n_counted_ptr is not None:
        scale /= tl.load(n_counted_ptr)

    # -- store: the probability of each class, less what the target gives to it; 0 in a
    # row that does not count, which is not read
    share = label_smoothing * inverse_n_cols  # of every class
    target_share = share + (1.0 - label_smoothing)
    for start in range(0, tl.cast(n_cols, tl.int64), BLOCK_N):
        mask = start + cols < n_read
        x = tl.load(logits_ptr + start + cols, mask=mask, other=0.0)
        probability = fast_exp(x.to(tl.float32) - logsumexp)
        given = tl.where(start + cols == target, target_share, share)
        out = tl.where(is_counted, scale * (probability - given), 0.0)
        out = out.to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + start + cols, out, mask=start + cols < n_cols)
