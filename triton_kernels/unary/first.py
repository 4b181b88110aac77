"""The first rung: a program computes a tile of elements, masked at the end.

A division finds the place of an element in a tensor with any strides.
"""

import triton
import triton.language as tl

from triton_kernels.common.activation import activate


@triton.jit
def unary_first_kernel(
    out_ptr,  # (n_elements)
    x_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
    x_stride_row,
    x_stride_col,
    BLOCK_N: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    # -- tile: a program owns BLOCK_N neighbouring elements
    i = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = i < n_elements
    row, col = i // n_cols, i % n_cols

    # -- load: a tile
    x = tl.load(x_ptr + row * x_stride_row + col * x_stride_col, mask=mask)

    # -- compute: in float32
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    x = x.to(tl.float32)
    out = activate(x, ACTIVATION, dtype)

    # -- store: rounded once
    tl.store(out_ptr + i, out.to(dtype), mask=mask)
