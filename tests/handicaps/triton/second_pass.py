"""Reads every row a second time, which it has not kept."""

import triton
import triton.language as tl


@triton.jit
def second_pass(out_ptr, x_ptr, n_cols):
    cols = tl.arange(0, 4096)
    row = tl.program_id(0) * n_cols
    x = tl.load(x_ptr + row + cols, mask=cols < n_cols, other=0.0)
    total = tl.sum(x)
    x = tl.load(x_ptr + row + cols, mask=cols < n_cols, volatile=True)
    tl.store(out_ptr + row + cols, x * (1.0 / total), mask=cols < n_cols)
