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
Traffic  reads and writes every element once: a row of up to 16384 columns stays in
         registers or, where that is faster, is read again out of the L1 cache; so is a
         longer one, as long as those that a multiprocessor works on fit into it (one
         row of about 50000 float32).
         The backward holds two rows of up to 8192 columns, and two sums for each
         column; beyond that a row is read twice.
Limits   accumulates in float32. The variance is that of differences from a mean, of
         which the rounding is taken back; a mean far from zero costs it no digits.
         Gradients of weights are added in an order that depends on the shape and the
         dtype alone.
Mirror   csrc/layer_norm/layer_norm.cu, where rows of float32 of 2049 to 4096 and of 16385 to 32768
         columns stay in registers: here it is faster to read them again
Source   Ba, Kiros & Hinton 2016, arXiv:1607.06450; Chan, Golub & LeVeque 1983,
         "Algorithms for computing the sample variance" (the corrected two-pass one)
"""

from torch import Tensor

from triton_kernels.common.table import FIRST, Rung
from triton_kernels.layer_norm.backward_first import layer_norm_backward_first_kernel
from triton_kernels.layer_norm.first import layer_norm_first_kernel
from triton_kernels.norm.backward_tables import launch_norm_backward
from triton_kernels.norm.tables import launch_norm


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
    rung: int,
) -> None:
    """Launches the kernel for rows of this length on the current device and stream."""
    walk = (n_rows, n_cols, rows_per_batch, x_stride_batch, x_stride_row)
    if rung == Rung.FIRST:
        layer_norm_first_kernel[(n_rows,)](
            out, mean, rstd, x, weight, bias, *walk, eps, **FIRST
        )
    else:
        launch_norm(out, mean, rstd, x, weight, bias, *walk, eps, rung)


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
    rung: int,
) -> None:
    """Launches two kernels, for long rows three, on the current device and stream."""
    strides = (grad_stride_batch, grad_stride_row, x_stride_batch, x_stride_row)
    if rung == Rung.FIRST:
        layer_norm_backward_first_kernel[(n_rows,)](
            grad_x,
            grad,
            x,
            mean,
            rstd,
            weight,
            n_rows,
            n_cols,
            rows_per_batch,
            *strides,
            **FIRST,
        )
    launch_norm_backward(
        grad_x,
        grad_weight,
        grad_bias,
        partials,
        row_means,
        grad,
        x,
        mean,
        rstd,
        weight,
        n_rows,
        n_cols,
        n_partials,
        rows_per_batch,
        *strides,
        rung,
    )
