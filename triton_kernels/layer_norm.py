"""Layer normalisation of every row of a matrix, and its backward.

  layer_norm:          out[row, :] = x_hat[row, :] * weight + bias,
                       x_hat[row, :] = (x[row, :] - mean[row]) * rstd[row],
                       rstd[row] = 1 / sqrt(variance(x[row, :]) + eps)
  layer_norm_backward: grad_x[row, :] = rstd[row] * (g - m - x_hat[row, :] * p),
                       g = grad[row, :] * weight, m = mean(g),
                       p = mean(g * x_hat[row, :]); over all rows
                       grad_weight = sum of grad[row, :] * x_hat[row, :],
                       grad_bias = sum of grad[row, :]

Layout   out, grad_x: (n_rows, n_cols), contiguous. x, grad: columns contiguous; row r
         of x begins at
         (r / rows_per_batch) * x_stride_batch + (r % rows_per_batch) * x_stride_row.
         mean, rstd: float32, one for each row. weight, bias: contiguous, or None for
         ones and zeros.
Traffic  reads and writes every element once as long as a row fits into the registers of
         a block (32768 columns; 8192 in the backward, which holds two rows and two sums
         for each column); beyond that a row is read twice.
Limits   accumulates in float32. The variance is that of differences from a mean, of
         which the rounding is taken back; a mean far from zero costs it no digits.
         Gradients of weights are added in an order that depends on the shape alone.
Mirror   csrc/layer_norm.cu
Source   Ba, Kiros & Hinton 2016, arXiv:1607.06450; Chan, Golub & LeVeque 1983,
         "Algorithms for computing the sample variance" (the corrected two-pass one)
"""

import math

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.norms import (
    BACKWARD_TILES,
    COLUMNS_BLOCK_N,
    COLUMNS_NUM_WARPS,
    LONG_BLOCK_N,
    LONG_NUM_WARPS,
    TILES,
    launch_sum_partials,
    load_weight,
    mean_of,
)
from triton_kernels.common.rows import row_offset
from triton_kernels.common.vec import known_multiple


@triton.jit
def variance(mean, mean_square):
    """The variance from the mean of differences and that of their squares.

    It may not come out below 0, but NaN stays NaN, and infinities become it.
    """
    result = mean_square - mean * mean
    return tl.where(result < 0.0, 0.0, result)


@triton.jit
def layer_norm_kernel(
    out_ptr,  # (n_rows, n_cols)
    mean_ptr,  # (n_rows)
    rstd_ptr,  # (n_rows)
    x_ptr,  # (n_rows, n_cols)
    weight_ptr,  # (n_cols), or None
    bias_ptr,  # (n_cols), or None
    n_rows,
    n_cols,
    rows_per_batch,
    x_stride_batch,
    x_stride_row,
    eps,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    """A row in registers: a program holds BLOCK_M rows of at most BLOCK_N columns."""
    # -- tile: a program owns one long row or several short ones
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.arange(0, BLOCK_N)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    x_ptr += row_offset(rows, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
    out_ptr += rows * n_cols

    # -- load: columns past the end become 0, which adds nothing
    x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)

    # -- mean
    row_sum = tl.sum(x, axis=1, keep_dims=True)
    mean = mean_of(row_sum, n_cols)

    # -- variance: of the differences, which replace x in its registers; their own mean
    # is what the rounding of the mean has left
    x = tl.where(mask, x - mean, 0.0)
    correction = mean_of(tl.sum(x, axis=1, keep_dims=True), n_cols)
    mean_square = mean_of(tl.sum(x * x, axis=1, keep_dims=True), n_cols)
    rstd = tl.rsqrt(variance(correction, mean_square) + eps)
    tl.store(mean_ptr + rows, mean + correction, mask=rows < n_rows)
    tl.store(rstd_ptr + rows, rstd, mask=rows < n_rows)

    # -- store: weight and bias are read only now, when they need no registers for long;
    # all rows share them, so that they come out of a cache
    weight = load_weight(weight_ptr, cols, cols < n_cols, 1.0)
    bias = load_weight(bias_ptr, cols, cols < n_cols, 0.0)
    out = (x - correction) * rstd * weight + bias
    tl.store(out_ptr + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def layer_norm_long_kernel(
    out_ptr,  # (n_rows, n_cols)
    mean_ptr,  # (n_rows)
    rstd_ptr,  # (n_rows)
    x_ptr,  # (n_rows, n_cols)
    weight_ptr,  # (n_cols), or None
    bias_ptr,  # (n_cols), or None
    n_rows,
    n_cols,
    rows_per_batch,
    x_stride_batch,
    x_stride_row,
    eps,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    """A row too long for the registers.

    A first pass over its tiles finds the statistics, a second writes the result.
    """
    # -- tile: a program owns one row and walks over it in tiles of BLOCK_N columns
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_N)
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
    out_ptr += row * n_cols

    # -- mean: of the first tile, which is good enough for the variance: if it holds one
    # in k of the columns, the variance is at least 1 / k of the squared distance to it,
    # so that no more than a factor of 1 + k is lost below
    n_first = tl.minimum(n_cols, BLOCK_N)
    x = tl.load(x_ptr + cols, mask=cols < n_first, other=0.0).to(tl.float32)
    mean = mean_of(tl.sum(x, axis=0), n_first)

    # -- variance: of the differences; their own mean is what is missing of the row's
    sums = tl.zeros([BLOCK_N], tl.float32)
    square_sums = tl.zeros([BLOCK_N], tl.float32)
    n_cols = tl.cast(n_cols, tl.int64)  # or the last step could overflow
    for start in range(0, n_cols, BLOCK_N):
        mask = cols < n_cols - start
        x = tl.load(x_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        difference = tl.where(mask, x - mean, 0.0)
        sums += difference
        square_sums += difference * difference
    correction = mean_of(tl.sum(sums, axis=0), n_cols)
    mean_square = mean_of(tl.sum(square_sums, axis=0), n_cols)
    rstd = tl.rsqrt(variance(correction, mean_square) + eps)
    tl.store(mean_ptr + row, mean + correction)
    tl.store(rstd_ptr + row, rstd)

    # -- store: the second pass
    for start in range(0, n_cols, BLOCK_N):
        mask = cols < n_cols - start
        x = tl.load(x_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        weight = load_weight(weight_ptr, start + cols, mask, 1.0)
        bias = load_weight(bias_ptr, start + cols, mask, 0.0)
        out = (x - mean - correction) * rstd * weight + bias
        tl.store(out_ptr + start + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def layer_norm_backward_kernel(
    grad_x_ptr,  # (n_rows, n_cols)
    partials_ptr,  # (2, n_partials, n_cols)
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    """Rows in registers.

    A program walks over many of them, and adds up for its columns what they contribute
    to the gradients of weight and bias.
    """
    # -- tile: a program owns every num_programs-th row, or group of short rows
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    first_row = tl.program_id(0).to(tl.int64) * BLOCK_M
    row_step = tl.num_programs(0).to(tl.int64) * BLOCK_M
    rows = first_row + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.arange(0, BLOCK_N)[None, :]

    # -- load: the first row; columns past the end become 0, which adds nothing
    mask = (rows < n_rows) & (cols < n_cols)
    grad_offsets = row_offset(
        rows, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
    )
    x_offsets = row_offset(rows, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
    grad = tl.load(grad_ptr + grad_offsets + cols, mask=mask, other=0.0)
    x = tl.load(x_ptr + x_offsets + cols, mask=mask, other=0.0)
    mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
    rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)

    weight_sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    bias_sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for _start in range(first_row, n_rows, row_step):
        # -- next: its loads are under way while this row is worked on
        next_rows = rows + row_step
        next_mask = (next_rows < n_rows) & (cols < n_cols)
        grad_offsets = row_offset(
            next_rows, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
        )
        x_offsets = row_offset(
            next_rows, n_rows, rows_per_batch, x_stride_batch, x_stride_row
        )
        next_grad = tl.load(grad_ptr + grad_offsets + cols, mask=next_mask, other=0.0)
        next_x = tl.load(x_ptr + x_offsets + cols, mask=next_mask, other=0.0)
        next_mean = tl.load(mean_ptr + next_rows, mask=next_rows < n_rows, other=0.0)
        next_rstd = tl.load(rstd_ptr + next_rows, mask=next_rows < n_rows, other=0.0)

        # -- reduce
        weight = load_weight(weight_ptr, cols, cols < n_cols, 1.0)
        wide_grad = grad.to(tl.float32)
        x_hat = (x.to(tl.float32) - mean) * rstd
        weight_sums += wide_grad * x_hat
        bias_sums += wide_grad
        g = wide_grad * weight
        mean_g = mean_of(tl.sum(g, axis=1, keep_dims=True), n_cols)
        mean_product = mean_of(tl.sum(g * x_hat, axis=1, keep_dims=True), n_cols)

        # -- store
        grad_x = rstd * (g - mean_g - x_hat * mean_product)
        mask = (rows < n_rows) & (cols < n_cols)
        tl.store(
            grad_x_ptr + rows * n_cols + cols,
            grad_x.to(grad_x_ptr.dtype.element_ty),
            mask=mask,
        )
        rows, grad, x = next_rows, next_grad, next_x
        mean, rstd = next_mean, next_rstd

    # -- partials: for the last launch to add
    partials_ptr += tl.program_id(0).to(tl.int64) * n_cols
    sums = tl.sum(weight_sums, axis=0, keep_dims=True)
    tl.store(partials_ptr + cols, sums, mask=cols < n_cols)
    partials_ptr += tl.num_programs(0).to(tl.int64) * n_cols
    sums = tl.sum(bias_sums, axis=0, keep_dims=True)
    tl.store(partials_ptr + cols, sums, mask=cols < n_cols)


@triton.jit
def layer_norm_backward_rows_kernel(
    row_means_ptr,  # (2, n_rows)
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
    DIVISIBILITY: tl.constexpr,
):
    """Rows too long for that, in two launches, which read them once each.

    The first finds the means of g and g * x_hat in every row.
    """
    # -- tile: a program owns one row and walks over it in tiles of BLOCK_N columns
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

    # -- reduce
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    sums = tl.zeros([BLOCK_N], tl.float32)
    product_sums = tl.zeros([BLOCK_N], tl.float32)
    n_cols = tl.cast(n_cols, tl.int64)  # or the last step could overflow
    for start in range(0, n_cols, BLOCK_N):
        mask = cols < n_cols - start
        grad = tl.load(grad_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        g = grad * load_weight(weight_ptr, start + cols, mask, 1.0)
        sums += g
        product_sums += g * ((x - mean) * rstd)

    # -- store
    tl.store(row_means_ptr + row, mean_of(tl.sum(sums, axis=0), n_cols))
    row_means_ptr += n_rows
    tl.store(row_means_ptr + row, mean_of(tl.sum(product_sums, axis=0), n_cols))


@triton.jit
def layer_norm_backward_columns_kernel(
    grad_x_ptr,  # (n_rows, n_cols)
    partials_ptr,  # (2, n_partials, n_cols)
    row_means_ptr,  # (2, n_rows)
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
    DIVISIBILITY: tl.constexpr,
):
    """The second writes the gradient of x, and adds up those of weight and bias."""
    # -- tile: a program owns BLOCK_N columns of every num_programs-th row
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    cols = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = cols < n_cols

    # -- load: the weight
    weight = load_weight(weight_ptr, cols, mask, 1.0)

    # -- store: and accumulate
    weight_sums = tl.zeros([BLOCK_N], tl.float32)
    bias_sums = tl.zeros([BLOCK_N], tl.float32)
    for row in range(tl.program_id(1).to(tl.int64), n_rows, tl.num_programs(1)):
        grad_row = row_offset(
            row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
        )
        x_row = row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
        grad = tl.load(grad_ptr + grad_row + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + x_row + cols, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        mean_g = tl.load(row_means_ptr + row)
        mean_product = tl.load(row_means_ptr + n_rows + row)
        x_hat = (x - tl.load(mean_ptr + row)) * rstd
        weight_sums += grad * x_hat
        bias_sums += grad
        grad_x = rstd * (grad * weight - mean_g - x_hat * mean_product)
        tl.store(
            grad_x_ptr + row * n_cols + cols,
            grad_x.to(grad_x_ptr.dtype.element_ty),
            mask=mask,
        )

    # -- partials: for the last launch to add
    partials_ptr += tl.program_id(1).to(tl.int64) * n_cols
    tl.store(partials_ptr + cols, weight_sums, mask=mask)
    partials_ptr += tl.num_programs(1).to(tl.int64) * n_cols
    tl.store(partials_ptr + cols, bias_sums, mask=mask)


def layer_norm(
    out: Tensor,
    mean: Tensor,
    rstd: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    n_rows: int,
    n_cols: int,
    rows_per_batch: int,
    x_stride_batch: int,
    x_stride_row: int,
    eps: float,
) -> None:
    """Launches the kernel for rows of this length on the current device and stream."""
    arguments = (
        out,
        mean,
        rstd,
        x,
        weight,
        bias,
        n_rows,
        n_cols,
        rows_per_batch,
        x_stride_batch,
        x_stride_row,
        eps,
    )
    divisibility = math.gcd(n_cols, x_stride_batch, x_stride_row, 16)
    for most_cols, block_m, num_warps in TILES:
        if n_cols <= most_cols:
            layer_norm_kernel[(triton.cdiv(n_rows, block_m),)](
                *arguments,
                BLOCK_M=block_m,
                BLOCK_N=max(16, triton.next_power_of_2(n_cols)),
                DIVISIBILITY=divisibility,
                num_warps=num_warps,
                enable_fp_fusion=True,
            )
            return
    layer_norm_long_kernel[(n_rows,)](
        *arguments,
        BLOCK_N=LONG_BLOCK_N,
        DIVISIBILITY=divisibility,
        num_warps=LONG_NUM_WARPS,
        enable_fp_fusion=True,
    )


def layer_norm_backward(
    grad_x: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
    partials: Tensor,
    row_means: Tensor,
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    n_rows: int,
    n_cols: int,
    n_partials: int,
    rows_per_batch: int,
    grad_stride_batch: int,
    grad_stride_row: int,
    x_stride_batch: int,
    x_stride_row: int,
) -> None:
    """Launches two kernels, for long rows three, on the current device and stream."""
    inputs = (
        grad,
        x,
        mean,
        rstd,
        weight,
        n_rows,
        n_cols,
        rows_per_batch,
        grad_stride_batch,
        grad_stride_row,
        x_stride_batch,
        x_stride_row,
    )
    divisibility = math.gcd(
        n_cols, grad_stride_batch, grad_stride_row, x_stride_batch, x_stride_row, 16
    )
    for most_cols, block_m, num_warps in BACKWARD_TILES:
        if n_cols <= most_cols:
            layer_norm_backward_kernel[(n_partials,)](
                grad_x,
                partials,
                *inputs,
                BLOCK_M=block_m,
                BLOCK_N=max(16, triton.next_power_of_2(n_cols)),
                DIVISIBILITY=divisibility,
                num_warps=num_warps,
                enable_fp_fusion=True,
            )
            break
    else:
        layer_norm_backward_rows_kernel[(n_rows,)](
            row_means,
            *inputs,
            BLOCK_N=LONG_BLOCK_N,
            DIVISIBILITY=divisibility,
            num_warps=LONG_NUM_WARPS,
            enable_fp_fusion=True,
        )
        layer_norm_backward_columns_kernel[
            (triton.cdiv(n_cols, COLUMNS_BLOCK_N), n_partials)
        ](
            grad_x,
            partials,
            row_means,
            *inputs,
            BLOCK_N=COLUMNS_BLOCK_N,
            DIVISIBILITY=divisibility,
            num_warps=COLUMNS_NUM_WARPS,
            enable_fp_fusion=True,
        )
    launch_sum_partials(grad_weight, grad_bias, partials, n_partials, n_cols)
