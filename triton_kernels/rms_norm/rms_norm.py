"""Root mean square normalisation of every row of a matrix, and its backward.

  rms_norm:          out[row, :] = x_hat[row, :] * weight,
                     x_hat[row, :] = x[row, :] * rstd[row],
                     rstd[row] = 1 / sqrt(mean(x[row, :]^2) + eps)
  rms_norm_backward: grad_x[row, :] = rstd[row] * (g - x_hat[row, :] * m),
                     g = grad[row, :] * weight, m = mean(g * x_hat[row, :]);
                     grad_weight = sum of grad[row, :] * x_hat[row, :] over all rows

Layout   out, grad_x: (n_rows, n_cols), contiguous. x, grad: columns contiguous; row r
         of x begins at
         (r / rows_per_batch) * x_stride_batch + (r % rows_per_batch) * x_stride_row.
         rstd: float32, one for each row. weight: contiguous, or None for ones.
Traffic  reads and writes every element once. Rows of up to 16384 columns, 32768 of
         float32, stay in registers; longer ones are read a second time, out of the L1
         cache, which an H200 has 256 KB of. In the backward programs share
         rows of more than 8192 columns.
Limits   accumulates in float32. Gradients of weights are added in an order that depends
         on the shape, the dtype and the GPU.
Mirror   csrc/rms_norm/rms_norm.cu, whose norm_backward_cluster_kernel shares long rows
         among the blocks of a cluster, as norm_backward_shared_kernel does among
         programs, which pass their sums on through global memory
Source   Zhang & Sennrich 2019, arXiv:1910.07467
"""

from triton_kernels.common.table import FIRST, Rung
from triton_kernels.norm.backward_tables import launch_norm_backward
from triton_kernels.norm.tables import launch_norm
from triton_kernels.rms_norm.backward_first import rms_norm_backward_first_kernel
from triton_kernels.rms_norm.first import rms_norm_first_kernel


def rms_norm(out, rstd, x, weight, n_rows, n_cols, rows_per_batch, *strides, eps, rung):
    """Launches the kernel for rows of this length on the current device and stream."""
    walk = (n_rows, n_cols, rows_per_batch, *strides)
    if rung == Rung.FIRST:
        rms_norm_first_kernel[(n_rows,)](out, rstd, x, weight, *walk, eps, **FIRST)
    else:
        launch_norm((out, None, rstd, x, weight, None), walk, eps, rung)


def rms_norm_backward(
    grad_x,
    grad_weight,
    partials,
    row_means,
    grad,
    x,
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
    grads = (grad_x, grad_weight, None)
    walk = (n_rows, n_cols, rows_per_batch, *strides)
    if rung == Rung.FIRST:
        rms_norm_backward_first_kernel[(n_rows,)](
            grad_x, grad, x, rstd, weight, *walk, **FIRST
        )
    inputs = (grad, x, None, rstd, weight)
    launch_norm_backward(grads, partials, inputs, walk, n_partials, rung)
