"""The first rung: a program adds two tiles of elements, masked at the end.

Two divisions find the place of an element in a tensor with any strides.
"""

import triton
import triton.language as tl


@triton.jit
def add_first_kernel(
    out_ptr,  # (n_elements)
    x_ptr,  # (n_elements / n_cols, n_cols)
    y_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
    x_stride_row,
    x_stride_col,
    y_stride_row,
    y_stride_col,
    BLOCK_N: tl.constexpr,
):
    # -- tile: a program owns BLOCK_N neighbouring elements
    i = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = i < n_elements
    row, col = i // n_cols, i % n_cols

    # -- load: a tile of each tensor
    x = tl.load(x_ptr + row * x_stride_row + col * x_stride_col, mask=mask)
    y = tl.load(y_ptr + row * y_stride_row + col * y_stride_col, mask=mask)

    # -- compute: in float32
    out = x.to(tl.float32) + y.to(tl.float32)

    # -- store: rounded once
    tl.store(out_ptr + i, out.to(out_ptr.dtype.element_ty), mask=mask)
