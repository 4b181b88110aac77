"""The twin: as swiglu_kernel, with two gradients of each element."""

import triton
import triton.language as tl

from triton_kernels.common.elementwise import load_elements, own_tile, store_elements
from triton_kernels.common.math import silu, silu_derivative


@triton.jit
def swiglu_backward_kernel(
    gate_grad_ptr,  # (n_elements / n_cols, n_cols)
    up_grad_ptr,  # (n_elements / n_cols, n_cols)
    grad_ptr,  # (n_elements / n_cols, n_cols)
    gate_ptr,  # (n_elements / n_cols, n_cols)
    up_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
    out_stride_row,
    grad_stride_row,
    grad_stride_col,
    gate_stride_row,
    gate_stride_col,
    up_stride_row,
    up_stride_col,
    BLOCK_SIZE: tl.constexpr,
    VEC_SIZE: tl.constexpr,
    STRIDED: tl.constexpr,
):
    # -- tile: a program owns BLOCK_SIZE neighbouring elements
    tile = own_tile(n_elements, n_cols, BLOCK_SIZE, VEC_SIZE)

    # -- load: past the end nothing is read
    grad = load_elements(grad_ptr, tile, grad_stride_row, grad_stride_col, STRIDED)
    gate = load_elements(gate_ptr, tile, gate_stride_row, gate_stride_col, STRIDED)
    up = load_elements(up_ptr, tile, up_stride_row, up_stride_col, STRIDED)

    # -- compute: in float32. The derivative comes first: where it is 0, grad * up
    # may be inf
    dtype: tl.constexpr = gate_grad_ptr.dtype.element_ty
    grad, gate, up = grad.to(tl.float32), gate.to(tl.float32), up.to(tl.float32)
    gate_grad = grad * silu_derivative(gate, dtype) * up
    up_grad = grad * silu(gate, dtype)

    # -- store: rounded once; past the end nothing is written
    store_elements(gate_grad_ptr, tile, gate_grad, out_stride_row, STRIDED)
    store_elements(up_grad_ptr, tile, up_grad, out_stride_row, STRIDED)
