"""Rows too long for a program: several share one, each with columns of its own.

Every element is read once. While the sums of a row travel between the programs, they
reduce the next one; more rows are on their way to shared memory meanwhile.
"""

import triton
import triton.language as tl

from triton_kernels.common.rows import row_offset
from triton_kernels.common.share import add_pairs, pair, receive, send, unpair
from triton_kernels.common.vec import known_multiple
from triton_kernels.norm.rows import load_weight


@triton.jit
def norm_backward_shared_kernel(
    grad_x_ptr,  # (n_rows, n_cols)
    partials_ptr,  # (1 or 2, n_partials, n_cols)
    sums_ptr,  # (n_rows, n_parts), each two of float32, or zeros
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
    N_PARTS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    WAITS: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    # -- tile: a program owns BLOCK_N columns of every num_programs-th row
    HAS_MEAN: tl.constexpr = mean_ptr is not None
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    n_parts, row_step = tl.num_programs(0), tl.num_programs(1)
    parts, cols = tl.arange(0, N_PARTS), tl.arange(0, BLOCK_N)
    first_col = tl.program_id(0).to(tl.int64) * BLOCK_N
    n_left = tl.minimum(n_cols - first_col, BLOCK_N).to(tl.int32)
    grad_ptr += first_col
    x_ptr += first_col
    grad_x_ptr += first_col
    partials_ptr += first_col + tl.program_id(1).to(tl.int64) * n_cols
    dtype = x_ptr.dtype.element_ty
    inverse_n = 1.0 / tl.cast(n_cols, tl.float32)

    # -- load: the weight; rows and columns past the end become 0, which adds nothing
    weight = load_weight(weight_ptr, first_col + cols, cols < n_left, 1.0)
    weight_sums = tl.zeros([BLOCK_N], tl.float32)
    bias_sums = tl.zeros([BLOCK_N], tl.float32)
    kept = pair(tl.zeros([BLOCK_N], dtype), tl.zeros([BLOCK_N], dtype))

    # Each round reduces the next row and stores `row`; the first one only reduces.
    first_row = tl.program_id(1) - row_step
    for row in tl.range(first_row, n_rows, row_step, num_stages=NUM_STAGES):
        # -- next: the compiler has these loads on their way some rounds ahead
        next_row = row + row_step
        has_next, has_row = next_row < n_rows, row >= 0
        row, next_row = tl.cast(row, tl.int64), tl.cast(next_row, tl.int64)
        grad_start = row_offset(
            next_row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
        )
        x_start = row_offset(
            next_row, n_rows, rows_per_batch, x_stride_batch, x_stride_row
        )
        mask = cols < tl.where(has_next, n_left, 0)
        next_grad = tl.load(grad_ptr + grad_start + cols, mask, 0.0)
        next_x = tl.load(x_ptr + x_start + cols, mask, 0.0)
        next_rstd = tl.load(rstd_ptr + next_row, has_next, 0.0)
        rstd = tl.load(rstd_ptr + row, has_row, 0.0)
        mean, next_mean = 0.0, 0.0
        if HAS_MEAN:
            mean = tl.load(mean_ptr + row, has_row, 0.0)
            next_mean = tl.load(mean_ptr + next_row, has_next, 0.0)

        # -- reduce: over the program's columns, and over the rows so far
        next_kept = pair(next_grad, next_x)
        next_grad = next_grad.to(tl.float32)
        next_x_hat = (next_x.to(tl.float32) - next_mean) * next_rstd
        next_g = next_grad * (weight * next_rstd)
        weight_sums += next_grad * next_x_hat
        product_sum, g_sum = tl.sum(next_g * next_x_hat, axis=0), 0.0
        if HAS_MEAN:
            bias_sums += next_grad
            product_sum, g_sum = tl.reduce((next_g * next_x_hat, next_g), 0, add_pairs)
        sum_ptr = sums_ptr + next_row * n_parts + tl.program_id(0)
        send(sum_ptr, product_sum, g_sum, has_next)

        # -- store: once the other programs have sent their sums; a row is kept in its
        # own dtype, as two elements of 16 bits take one register
        if WAITS:
            mask = parts < tl.where(has_row, n_parts, 0)
            product_sum, g_sum = receive(sums_ptr + row * n_parts + parts, mask)
            mean_product, mean_g = product_sum * inverse_n, g_sum * inverse_n
            grad, x = unpair(kept, dtype)
            x_hat, g = (x - mean) * rstd, grad * (weight * rstd)
            grad_x = g - mean_g - x_hat * mean_product
            mask = cols < tl.where(has_row, n_left, 0)
            tl.store(grad_x_ptr + row * n_cols + cols, grad_x.to(dtype), mask)
        kept = next_kept

    # -- partials: for the last launch to add
    tl.store(partials_ptr + cols, weight_sums, cols < n_left)
    if HAS_MEAN:
        tl.store(
            partials_ptr + row_step.to(tl.int64) * n_cols + cols,
            bias_sums,
            cols < n_left,
        )
