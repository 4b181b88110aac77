"""Rows too long for a program: several share one, each with columns of its own.

Every element is read once. While the sums of a row travel between the programs, they
add up the next one; more rows are on their way to shared memory meanwhile.
"""

import triton
import triton.language as tl

from triton_kernels.common.rows import row_offset
from triton_kernels.common.share import pair, receive, send, unpair
from triton_kernels.common.vec import known_multiple


@triton.jit
def softmax_backward_shared_kernel(
    out_ptr,  # (n_rows, n_cols)
    sums_ptr,  # (n_rows, n_parts), each two of float32, or zeros
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
    N_PARTS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    WAITS: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    # -- tile: a program owns BLOCK_N columns of every num_programs-th row
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    y_stride_batch = known_multiple(y_stride_batch, DIVISIBILITY)
    y_stride_row = known_multiple(y_stride_row, DIVISIBILITY)
    n_parts, row_step = tl.num_programs(0), tl.num_programs(1)
    parts, cols = tl.arange(0, N_PARTS), tl.arange(0, BLOCK_N)
    first_col = tl.program_id(0).to(tl.int64) * BLOCK_N
    n_left = tl.minimum(n_cols - first_col, BLOCK_N).to(tl.int32)
    grad_ptr += first_col
    y_ptr += first_col
    out_ptr += first_col
    dtype = out_ptr.dtype.element_ty
    kept = pair(tl.zeros([BLOCK_N], dtype), tl.zeros([BLOCK_N], dtype))

    # Each round adds up the next row and stores `row`; the first one only adds up.
    first_row = tl.program_id(1) - row_step
    for row in tl.range(first_row, n_rows, row_step, num_stages=NUM_STAGES):
        # -- next: the compiler has these loads on their way some rounds ahead
        next_row = row + row_step
        has_next, has_row = next_row < n_rows, row >= 0
        row, next_row = tl.cast(row, tl.int64), tl.cast(next_row, tl.int64)
        grad_start = row_offset(
            next_row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
        )
        y_start = row_offset(
            next_row, n_rows, rows_per_batch, y_stride_batch, y_stride_row
        )
        mask = cols < tl.where(has_next, n_left, 0)
        next_grad = tl.load(grad_ptr + grad_start + cols, mask, 0.0)
        next_y = tl.load(y_ptr + y_start + cols, mask, 0.0)

        # -- sum: of the products in the program's columns
        sum = tl.sum(next_grad.to(tl.float32) * next_y.to(tl.float32), axis=0)
        send(sums_ptr + next_row * n_parts + tl.program_id(0), sum, 0.0, has_next)

        # -- store: once the other programs have sent their sums; a row is kept in its
        # own dtype, as two elements of 16 bits take one register
        if WAITS:
            mask = parts < tl.where(has_row, n_parts, 0)
            row_sum, _ = receive(sums_ptr + row * n_parts + parts, mask)
            grad, y = unpair(kept, dtype)
            out = (y * (grad - row_sum)).to(dtype)
            mask = cols < tl.where(has_row, n_left, 0)
            tl.store(out_ptr + row * n_cols + cols, out, mask)
        kept = pair(next_grad, next_y)
