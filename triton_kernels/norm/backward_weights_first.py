"""The first rung's second kernel, of both norms: a program owns columns of all rows.

It adds up rows by the hundred, and then those sums: along a single chain of additions
the rounding errors of thousands of rows would pile up.
"""

import triton
import triton.language as tl

from triton_kernels.common.rows import row_offset


@triton.jit
def norm_backward_weights_first_kernel(
    grad_weight_ptr,  # (n_cols)
    grad_bias_ptr,  # (n_cols), or None
    grad_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
    mean_ptr,  # (n_rows), or None
    rstd_ptr,  # (n_rows)
    n_rows,
    n_cols,
    rows_per_batch,
    grad_stride_batch,
    grad_stride_row,
    x_stride_batch,
    x_stride_row,
    BLOCK_N: tl.constexpr,
):
    # -- tile: a program owns BLOCK_N columns
    cols = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = cols < n_cols

    # -- accumulate: over all rows
    weight_sum = tl.zeros([BLOCK_N], tl.float32)
    bias_sum = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, tl.cast(n_rows, tl.int64), 100):
        weight_part = tl.zeros([BLOCK_N], tl.float32)
        bias_part = tl.zeros([BLOCK_N], tl.float32)
        for row in range(start, min(start + 100, n_rows)):
            grad_row_ptr = grad_ptr + row_offset(
                row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
            )
            x_row_ptr = x_ptr + row_offset(
                row, n_rows, rows_per_batch, x_stride_batch, x_stride_row
            )
            grad = tl.load(grad_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
            x = tl.load(x_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
            if mean_ptr is not None:
                x -= tl.load(mean_ptr + row)
            weight_part += grad * x * tl.load(rstd_ptr + row)
            bias_part += grad
        weight_sum += weight_part
        bias_sum += bias_part

    # -- store: rounded once
    dtype = grad_weight_ptr.dtype.element_ty
    tl.store(grad_weight_ptr + cols, weight_sum.to(dtype), mask=mask)
    if grad_bias_ptr is not None:
        tl.store(grad_bias_ptr + cols, bias_sum.to(dtype), mask=mask)
