"""The first rung: a program owns a row, and walks over it twice."""

import triton
import triton.language as tl

from triton_kernels.common.rows import row_offset


@triton.jit
def softmax_backward_first_kernel(
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
):
    # -- tile: a program owns a row, in tiles of BLOCK_N columns
    row = tl.program_id(0).to(tl.int64)
    grad_ptr += row_offset(
        row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
    )
    y_ptr += row_offset(row, n_rows, rows_per_batch, y_stride_batch, y_stride_row)
    out_ptr += row * n_cols
    cols = tl.arange(0, BLOCK_N).to(tl.int64)

    # -- sum: of the products
    sums = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, tl.cast(n_cols, tl.int64), BLOCK_N):
        mask = start + cols < n_cols
        grad = tl.load(grad_ptr + start + cols, mask=mask, other=0.0)
        y = tl.load(y_ptr + start + cols, mask=mask, other=0.0)
        sums += grad.to(tl.float32) * y.to(tl.float32)
    row_sum = tl.sum(sums, axis=0)

    # -- store: first the difference, which is exact where the two are nearly the same
    for start in range(0, tl.cast(n_cols, tl.int64), BLOCK_N):
        mask = start + cols < n_cols
        grad = tl.load(grad_ptr + start + cols, mask=mask, other=0.0)
        y = tl.load(y_ptr + start + cols, mask=mask, other=0.0)
        out = y.to(tl.float32) * (grad.to(tl.float32) - row_sum)
        tl.store(out_ptr + start + cols, out.to(out_ptr.dtype.element_ty), mask=mask)
