"""Rows too long for a program take two launches, each of which reads them once.

The first finds the means of g * x_hat and of g in every row. In the second a program
walks down some columns of many rows, writes the gradient of x and adds up those of
weight and bias.
"""

import triton
import triton.language as tl

from triton_kernels.common.rows import row_offset
from triton_kernels.common.vec import known_multiple
from triton_kernels.norm.rows import load_weight, mean_of


@triton.jit
def norm_backward_rows_kernel(
    row_means_ptr,  # (1 or 2, n_rows)
    grad_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
    mean_ptr,  # (n_rows), or None
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
    DIVISIBILITY: tl.constexpr,
):
    # -- tile: a program owns one row and walks over it in tiles of BLOCK_N columns
    HAS_MEAN: tl.constexpr = mean_ptr is not None
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_N)
    grad_ptr += row_offset(
        row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
    )
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row)

    # -- reduce: with x - mean in place of x_hat, whose factor rstd the whole row shares
    mean = 0.0
    if HAS_MEAN:
        mean = tl.load(mean_ptr + row)
    g_sums = tl.zeros([BLOCK_N], tl.float32)
    product_sums = tl.zeros([BLOCK_N], tl.float32)
    n_cols = tl.cast(n_cols, tl.int64)  # or the last step could overflow
    for start in range(0, n_cols, BLOCK_N):
        mask = cols < n_cols - start
        grad = tl.load(grad_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        g = grad * load_weight(weight_ptr, start + cols, mask, 1.0)
        product_sums += g * (x - mean)
        if HAS_MEAN:
            g_sums += g
    product_sum = tl.sum(product_sums, axis=0) * tl.load(rstd_ptr + row)

    # -- store: for the launch that follows
    tl.store(row_means_ptr + row, mean_of(product_sum, n_cols))
    if HAS_MEAN:
        mean_g = mean_of(tl.sum(g_sums, axis=0), n_cols)
        tl.store(row_means_ptr + n_rows + row, mean_g)


@triton.jit
def norm_backward_columns_kernel(
    grad_x_ptr,  # (n_rows, n_cols)
    partials_ptr,  # (1 or 2, n_partials, n_cols)
    row_means_ptr,  # (1 or 2, n_rows)
    grad_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
    mean_ptr,  # (n_rows), or None
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
    DIVISIBILITY: tl.constexpr,
):
    # -- tile: a program owns BLOCK_N columns of every num_programs-th row
    HAS_MEAN: tl.constexpr = mean_ptr is not None
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    cols = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = cols < n_cols

    # -- load: the weight
    weight = load_weight(weight_ptr, cols, mask, 1.0)

    # -- store: and accumulate, beginning with the last row, which the first launch has
    # left in the L2 cache
    weight_sums = tl.zeros([BLOCK_N], tl.float32)
    bias_sums = tl.zeros([BLOCK_N], tl.float32)
    for i in range(tl.program_id(1).to(tl.int64), n_rows, tl.num_programs(1)):
        row = n_rows - 1 - i
        grad_start = row_offset(
            row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
        )
        x_start = row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
        grad = tl.load(grad_ptr + grad_start + cols, mask, 0.0).to(tl.float32)
        x = tl.load(x_ptr + x_start + cols, mask, 0.0).to(tl.float32)
        mean, mean_g = 0.0, 0.0
        if HAS_MEAN:
            mean = tl.load(mean_ptr + row)
            mean_g = tl.load(row_means_ptr + n_rows + row)
            bias_sums += grad
        rstd = tl.load(rstd_ptr + row)
        mean_product = tl.load(row_means_ptr + row)
        x_hat = (x - mean) * rstd
        weight_sums += grad * x_hat
        grad_x = rstd * (grad * weight - mean_g - x_hat * mean_product)
        out_ptr = grad_x_ptr + row * n_cols + cols
        tl.store(out_ptr, grad_x.to(out_ptr.dtype.element_ty), mask)

    # -- partials: for the last launch to add
    partials_ptr += tl.program_id(1).to(tl.int64) * n_cols
    tl.store(partials_ptr + cols, weight_sums, mask=mask)
    if HAS_MEAN:
        partials_ptr += tl.num_programs(1).to(tl.int64) * n_cols
        tl.store(partials_ptr + cols, bias_sums, mask=mask)
