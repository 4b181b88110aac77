"""Fills the columns past the end with 0, each of which adds to the sum."""

import triton
import triton.language as tl


@triton.jit
def kernel(out_ptr, x_ptr, n_cols, x_stride_row, BLOCK_N: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + row * x_stride_row + cols, mask=cols < n_cols, other=0.0)
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * n_cols + cols, x / tl.sum(x, axis=0), mask=cols < n_cols)


def softmax_padded_with_zeros(out, x, n_rows, n_cols, *strides):
    kernel[(n_rows,)](
        out, x, n_cols, strides[-1], BLOCK_N=triton.next_power_of_2(n_cols)
    )
