"""Sums in float16 what it has computed in float32."""

import triton
import triton.language as tl


@triton.jit
def kernel(out_ptr, x_ptr, n_cols, x_stride_row, BLOCK_N: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_N)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride_row + cols, mask=mask, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    row_sum = tl.sum(x.to(tl.float16), axis=0).to(tl.float32)
    tl.store(out_ptr + row * n_cols + cols, x / row_sum, mask=mask)


def softmax_sum_in_half(out, x, n_rows, n_cols, *strides):
    kernel[(n_rows,)](
        out, x, n_cols, strides[-1], BLOCK_N=triton.next_power_of_2(n_cols)
    )
