"""The twin: rows of grad and y stay in registers, as softmax_kernel holds x."""

import triton
import triton.language as tl

from triton_kernels.common.rows import row_offset
from triton_kernels.common.tile import load_row, store_row
from triton_kernels.common.vec import known_multiple


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
    N_TILES: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    # -- tile: a program owns one long row or several short ones
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    y_stride_batch = known_multiple(y_stride_batch, DIVISIBILITY)
    y_stride_row = known_multiple(y_stride_row, DIVISIBILITY)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.arange(0, BLOCK_N)[None, :]
    is_row = rows < n_rows
    grad_ptr += row_offset(
        rows, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
    )
    y_ptr += row_offset(rows, n_rows, rows_per_batch, y_stride_batch, y_stride_row)
    out_ptr += rows * n_cols

    # -- load: columns past the end become 0, which adds nothing to the sum
    grad = load_row(grad_ptr, cols, is_row, n_cols, N_TILES)
    y = load_row(y_ptr, cols, is_row, n_cols, N_TILES)

    # -- sum: of the products
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in tl.static_range(N_TILES):
        sums += grad[i] * y[i]
    row_sum = tl.sum(sums, axis=1, keep_dims=True)

    # -- store: first the difference, which is exact where the two are nearly the same
    out = ()
    for i in tl.static_range(N_TILES):
        out += (y[i] * (grad[i] - row_sum),)
    store_row(out_ptr, out, cols, is_row, n_cols, N_TILES)
