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
Traffic  reads and writes every element once. Rows of up to 16384 columns, 32768 of
         float32, stay in registers; longer ones are read again, out of the L1 cache
         (256 KB on an H200). In the backward, programs share rows above 8192 columns.
Limits   accumulates in float32. The variance is that of differences from a mean, of
         which the rounding is taken back; a mean far from zero costs it no digits.
         Gradients of weights are added in an order that depends on the shape, the
         dtype and the GPU.
Mirror   csrc/layer_norm/layer_norm.cu, whose norm_backward_cluster_kernel shares long
         rows among the blocks of a cluster, as norm_backward_shared_kernel does among
         programs, which pass their sums on through global memory
Source   Ba, Kiros & Hinton 2016, arXiv:1607.06450; Chan, Golub & LeVeque 1983,
         "Algorithms for computing the sample variance" (the corrected two-pass one)
"""

from triton_kernels.common.table import FIRST, Rung
from triton_kernels.layer_norm.backward_first import layer_norm_backward_first_kernel
from triton_kernels.layer_norm.first import layer_norm_first_kernel
from triton_kernels.norm.backward_tables import launch_norm_backward
from triton_kernels.norm.tables import launch_norm


def layer_norm(
    out,
    mean,
    rstd,
    x,
    weight,
    bias,
    n_rows,
    n_cols,
    rows_per_batch,
    *strides,
    eps,
    rung,
):
    """Launches the kernel for rows of this length on the current device and stream."""
    tensors = (out, mean, rstd, x, weight, bias)
    walk = (n_rows, n_cols, rows_per_batch, *strides)
    if rung == Rung.FIRST:
        layer_norm_first_kernel[(n_rows,)](*tensors, *walk, eps, **FIRST)
    else:
        launch_norm(tensors, walk, eps, rung)


def layer_norm_backward(
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
):
    """Launches two kernels on the current device and stream; row_means is for CUDA."""
    grads = (grad_x, grad_weight, grad_bias)
    inputs = (grad, x, mean, rstd, weight)
    walk = (n_rows, n_cols, rows_per_batch, *strides)
    if rung == Rung.FIRST:
        layer_norm_backward_first_kernel[(n_rows,)](grad_x, *inputs, *walk, **FIRST)
    launch_norm_backward(grads, partials, inputs, walk, n_partials, rung)
