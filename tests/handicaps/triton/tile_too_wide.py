"""A tile of twice the columns that a row has: half of it is masked off."""

import triton
import triton.language as tl


@triton.jit
def tile_too_wide(out_ptr, x_ptr, n_cols):
    cols = tl.arange(0, 8192)
    row = tl.program_id(0) * n_cols
    x = tl.load(x_ptr + row + cols, mask=cols < n_cols, other=0.0)
    tl.store(out_ptr + row + cols, x * (1.0 / tl.sum(x)), mask=cols < n_cols)
