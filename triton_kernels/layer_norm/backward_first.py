"""The first rung: a program owns a row of grad_x, and reads grad and x twice."""

import triton
import triton.language as tl

from triton_kernels.common.rows import row_offset
from triton_kernels.norm.rows import load_weight


@triton.jit
def layer_norm_backward_first_kernel(
    grad_x_ptr,  # (n_rows, n_cols)
    grad_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
    mean_ptr,  # (n_rows)
    rstd_ptr,  # (n_rows)
    weight_ptr,  # (n_cols), or None
    n_rows,
    n_cols,
    rows_per_batch,
    grad_stride_batch,
    grad_stride_row,
    x_stride_batch,
    x_stride_row,
    BLOCK_N: tl.constexpr,
):
    # -- tile: a program owns a row, in tiles of BLOCK_N columns
    row = tl.program_id(0).to(tl.int64)
    grad_ptr += row_offset(
        row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
    )
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
    grad_x_ptr += row * n_cols
    cols = tl.arange(0, BLOCK_N).to(tl.int64)

    # -- reduce: to the means of g and g * x_hat
    mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
    g_sums = tl.zeros([BLOCK_N], tl.float32)
    product_sums = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, tl.cast(n_cols, tl.int64), BLOCK_N):
        mask = start + cols < n_cols
        grad = tl.load(grad_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        g = grad * load_weight(weight_ptr, start + cols, mask, 1.0)
        g_sums += g
        product_sums += g * ((x - mean) * rstd)
    mean_g = tl.sum(g_sums, axis=0) / n_cols
    mean_product = tl.sum(product_sums, axis=0) / n_cols

    # -- store: rounded once
    dtype = grad_x_ptr.dtype.element_ty
    for start in range(0, tl.cast(n_cols, tl.int64), BLOCK_N):
        mask = start + cols < n_cols
        grad = tl.load(grad_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        g = grad * load_weight(weight_ptr, start + cols, mask, 1.0)
        grad_x = rstd * (g - mean_g - (x - mean) * rstd * mean_product)
        tl.store(grad_x_ptr + start + cols, grad_x.to(dtype), mask=mask)
