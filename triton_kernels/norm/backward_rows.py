"""The first of two launches for rows too long for a program.

It finds the means of g * x_hat and of g in every row.
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
