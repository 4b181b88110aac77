"""The twin: as unary_kernel, of a gradient and x."""

import triton
import triton.language as tl

from triton_kernels.common.activation import activate_backward
from triton_kernels.common.elementwise import load_elements, own_tile, store_elements


@triton.jit
def unary_backward_kernel(
    out_ptr,  # (n_elements)
    grad_ptr,  # (n_elements / n_cols, n_cols)
    x_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
    grad_stride_row,
    grad_stride_col,
    x_stride_row,
    x_stride_col,
    BLOCK_SIZE: tl.constexpr,
    VEC_SIZE: tl.constexpr,
    STRIDED: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    # -- tile: a program owns BLOCK_SIZE neighbouring elements
    tile = own_tile(n_elements, n_cols, BLOCK_SIZE, VEC_SIZE)

    # -- load: past the end nothing is read
    grad = load_elements(grad_ptr, tile, grad_stride_row, grad_stride_col, STRIDED)
    x = load_elements(x_ptr, tile, x_stride_row, x_stride_col, STRIDED)

    # -- compute: in float32
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    grad, x = grad.to(tl.float32), x.to(tl.float32)
    out = activate_backward(grad, x, ACTIVATION, dtype)

    # -- store: rounded once; past the end nothing is written
    store_elements(out_ptr, tile, out)
