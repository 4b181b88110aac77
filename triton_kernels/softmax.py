"""Softmax of every row of a matrix, and its backward.

  softmax:          out[row, :] = exp(x[row, :] - m) / sum(exp(x[row, :] - m)),
                    m = max(x[row, :])
  softmax_backward: out[row, :] = y[row, :] * (grad[row, :] - s),
                    s = sum(grad[row, :] * y[row, :]), y what softmax returned

Layout   out: (n_rows, n_cols), contiguous. x, grad, y: columns contiguous; row r of x
         begins at
         (r / rows_per_batch) * x_stride_batch + (r % rows_per_batch) * x_stride_row.
Traffic  reads and writes every element once as long as a row fits into the registers of
         a block (32768 columns; 16384 in the backward, which holds two rows); beyond
         that a row is read twice.
Limits   accumulates in float32. A row with NaN or +inf, or of -inf alone, is NaN.
Mirror   csrc/softmax.cu differs in softmax_long_kernel and softmax_backward_long_kernel,
         because Triton has neither shared memory to keep a row in nor clusters to share
         one: it reads a long row twice.
Source   Milakov & Gimelshein 2018, arXiv:1805.02867 (algorithm 2; 3 for long rows)
"""

import math

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.math import fast_exp
from triton_kernels.common.rows import row_offset
from triton_kernels.common.vec import known_multiple


@triton.jit
def softmax_kernel(
    out_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
    n_rows,
    n_cols,
    rows_per_batch,
    x_stride_batch,
    x_stride_row,
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

    # -- load: columns past the end become -inf, which exp maps to 0
    x = tl.load(x_ptr + cols, mask=mask, other=-float("inf")).to(tl.float32)

    # -- max: subtracted below, so that no exponential overflows
    row_max = tl.max(x, axis=1, keep_dims=True)

    # -- sum: of the numerators
    x = fast_exp(x - row_max)
    row_sum = tl.sum(x, axis=1, keep_dims=True)

    # -- store: one division for the row, one multiplication for every element
    inverse_sum = 1.0 / row_sum
    tl.store(out_ptr + cols, (x * inverse_sum).to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_long_kernel(
    out_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
    n_rows,
    n_cols,
    rows_per_batch,
    x_stride_batch,
    x_stride_row,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    """A row too long for the registers.

    A first pass over its tiles finds maximum and sum, a second writes the result.
    """
    # -- tile: a program owns one row and walks over it in tiles of BLOCK_N columns
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_N)
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
    out_ptr += row * n_cols

    # -- max_sum: of what each lane sees; the sum is rescaled as the maximum grows
    lane_max = tl.full([BLOCK_N], -float("inf"), tl.float32)
    lane_sum = tl.zeros([BLOCK_N], tl.float32)
    n_cols = tl.cast(n_cols, tl.int64)  # or the last step could overflow
    for start in range(0, n_cols, BLOCK_N):
        mask = cols < n_cols - start
        x = tl.load(x_ptr + start + cols, mask=mask, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(lane_max, x)
        # As long as nothing but -inf was seen, the sum is taken relative to 0: it stays
        # 0, where -inf - -inf would make it NaN.
        origin = tl.where(new_max == -float("inf"), 0.0, new_max)
        lane_sum = lane_sum * fast_exp(lane_max - origin) + fast_exp(x - origin)
        lane_max = new_max

    # -- combine: the lanes' maxima and sums
    row_max = tl.max(lane_max, axis=0)
    row_sum = tl.sum(lane_sum * fast_exp(lane_max - row_max), axis=0)

    # -- store: the second pass
    inverse_sum = 1.0 / row_sum
    for start in range(0, n_cols, BLOCK_N):
        mask = cols < n_cols - start
        x = tl.load(x_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        out = fast_exp(x - row_max) * inverse_sum
        tl.store(out_ptr + start + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    out_ptr,  # (n_rows, n_cols)
    grad_ptr,  # (n_rows, n_cols)
    y_ptr,  # (n_rows, n_cols)
    n_rows,
    n_cols,
    rows_per_batch,
    grad_stride_batch,
    grad_stride_row,
    y_stride_batch,
    y_stride_row,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    """Rows of grad and y in registers, held as softmax_kernel holds x."""
    # -- tile: a program owns one long row or several short ones
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    y_stride_batch = known_multiple(y_stride_batch, DIVISIBILITY)
    y_stride_row = known_multiple(y_stride_row, DIVISIBILITY)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.arange(0, BLOCK_N)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    grad_ptr += row_offset(
        rows, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
    )
    y_ptr += row_offset(rows, n_rows, rows_per_batch, y_stride_batch, y_stride_row)
    out_ptr += rows * n_cols

    # -- load: columns past the end become 0, which adds nothing to the sum
    grad = tl.load(grad_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + cols, mask=mask, other=0.0).to(tl.float32)

    # -- sum: of the products
    row_sum = tl.sum(grad * y, axis=1, keep_dims=True)

    # -- store: first the difference, which is exact where the two are nearly the same
    out = y * (grad - row_sum)
    tl.store(out_ptr + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_long_kernel(
    out_ptr,  # (n_rows, n_cols)
    grad_ptr,  # (n_rows, n_cols)
    y_ptr,  # (n_rows, n_cols)
    n_rows,
    n_cols,
    rows_per_batch,
    grad_stride_batch,
    grad_stride_row,
    y_stride_batch,
    y_stride_row,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    """Rows too long for the registers.

    A first pass over their tiles finds the sum, a second reads them again and writes
    the result.
    """
    # -- tile: a program owns one row and walks over it in tiles of BLOCK_N columns
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    y_stride_batch = known_multiple(y_stride_batch, DIVISIBILITY)
    y_stride_row = known_multiple(y_stride_row, DIVISIBILITY)
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_N)
    grad_ptr += row_offset(
        row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
    )
    y_ptr += row_offset(row, n_rows, rows_per_batch, y_stride_batch, y_stride_row)
    out_ptr += row * n_cols

    # -- sum: of the products in the columns that each lane sees
    lane_sum = tl.zeros([BLOCK_N], tl.float32)
    n_cols = tl.cast(n_cols, tl.int64)  # or the last step could overflow
    for start in range(0, n_cols, BLOCK_N):
        mask = cols < n_cols - start
        grad = tl.load(grad_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        lane_sum += grad * y

    # -- combine: the lanes' sums
    row_sum = tl.sum(lane_sum, axis=0)

    # -- store: the second pass
    for start in range(0, n_cols, BLOCK_N):
        mask = cols < n_cols - start
        grad = tl.load(grad_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        out = y * (grad - row_sum)
        tl.store(out_ptr + start + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


# The rows of a tile and the warps that share it, by the longest row that fits: short
# rows share a program.
TILES = (  # (most columns, BLOCK_M, num_warps)
    (64, 32, 4),
    (256, 8, 4),
    (512, 4, 4),
    (1024, 4, 4),
    (2048, 1, 4),
    (4096, 1, 4),
    (8192, 1, 8),
    (16384, 1, 16),
    (32768, 1, 32),
)
# The same for two rows at once: a thread holds half as much of each.
BACKWARD_TILES = (  # (most columns, BLOCK_M, num_warps)
    (64, 32, 4),
    (256, 8, 4),
    (512, 4, 4),
    (1024, 2, 4),
    (2048, 1, 4),
    (4096, 1, 8),
    (8192, 1, 16),
    (16384, 1, 32),
)
LONG_BLOCK_N = 4096
LONG_NUM_WARPS = 8


def softmax(
    out: Tensor,
    x: Tensor,
    n_rows: int,
    n_cols: int,
    rows_per_batch: int,
    x_stride_batch: int,
    x_stride_row: int,
) -> None:
    """Launches the kernel for rows of this length on the current device and stream."""
    arguments = (out, x, n_rows, n_cols, rows_per_batch, x_stride_batch, x_stride_row)
    divisibility = math.gcd(n_cols, x_stride_batch, x_stride_row, 16)
    for most_cols, block_m, num_warps in TILES:
        if n_cols <= most_cols:
            softmax_kernel[(triton.cdiv(n_rows, block_m),)](
                *arguments,
                BLOCK_M=block_m,
                BLOCK_N=max(16, triton.next_power_of_2(n_cols)),
                DIVISIBILITY=divisibility,
                num_warps=num_warps,
                enable_fp_fusion=True,
            )
            return
    softmax_long_kernel[(n_rows,)](
        *arguments,
        BLOCK_N=LONG_BLOCK_N,
        DIVISIBILITY=divisibility,
        num_warps=LONG_NUM_WARPS,
        enable_fp_fusion=True,
    )


def softmax_backward(
    out: Tensor,
    grad: Tensor,
    y: Tensor,
    n_rows: int,
    n_cols: int,
    rows_per_batch: int,
    grad_stride_batch: int,
    grad_stride_row: int,
    y_stride_batch: int,
    y_stride_row: int,
) -> None:
    """Launches the kernel for rows of this length on the current device and stream."""
    strides = (grad_stride_batch, grad_stride_row, y_stride_batch, y_stride_row)
    arguments = (out, grad, y, n_rows, n_cols, rows_per_batch, *strides)
    divisibility = math.gcd(n_cols, *strides, 16)
    for most_cols, block_m, num_warps in BACKWARD_TILES:
        if n_cols <= most_cols:
            softmax_backward_kernel[(triton.cdiv(n_rows, block_m),)](
                *arguments,
                BLOCK_M=block_m,
                BLOCK_N=max(16, triton.next_power_of_2(n_cols)),
                DIVISIBILITY=divisibility,
                num_warps=num_warps,
                enable_fp_fusion=True,
            )
            return
    softmax_backward_long_kernel[(n_rows,)](
        *arguments,
        BLOCK_N=LONG_BLOCK_N,
        DIVISIBILITY=divisibility,
        num_warps=LONG_NUM_WARPS,
        enable_fp_fusion=True,
    )
