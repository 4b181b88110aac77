"""The twin: as glu_kernel, with two gradients of each element."""

import triton
import triton.language as tl

from triton_kernels.common.activation import activate, activate_backward
from triton_kernels.common.elementwise import load_elements, own_tile, store_elements


@triton.jit
def glu_backward_kernel(
    value_grad_ptr,  # (n_elements / n_cols, n_cols)
    gate_grad_ptr,  # (n_elements / n_cols, n_cols)
    grad_ptr,  # (n_elements / n_cols, n_cols)
    value_ptr,  # (n_elements / n_cols, n_cols)
    gate_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
    out_stride_row,
    grad_stride_row,
    grad_stride_col,
    value_stride_row,
    value_stride_col,
    gate_stride_row,
    gate_stride_col,
    BLOCK_SIZE: tl.constexpr,
    VEC_SIZE: tl.constexpr,
    STRIDED: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    # -- tile: a program owns BLOCK_SIZE neighbouring elements
    tile = own_tile(n_elements, n_cols, BLOCK_SIZE, VEC_SIZE)

    # -- load: past the end nothing is read
    grad = load_elements(grad_ptr, tile, grad_stride_row, grad_stride_col, STRIDED)
    value = load_elements(value_ptr, tile, value_stride_row, value_stride_col, STRIDED)
    gate = load_elements(gate_ptr, tile, gate_stride_row, gate_stride_col, STRIDED)

    # -- compute: in float32. The derivative comes first: where it is 0, grad * value
    # may be inf
    dtype: tl.constexpr = value_grad_ptr.dtype.element_ty
    grad, value, gate = grad.to(tl.float32), value.to(tl.float32), gate.to(tl.float32)
    gate_grad = activate_backward(grad, gate, ACTIVATION, dtype) * value
    value_grad = grad * activate(gate, ACTIVATION, dtype)

    # -- store: rounded once; past the end nothing is written
    store_elements(value_grad_ptr, tile, value_grad, out_stride_row, STRIDED)
    store_elements(gate_grad_ptr, tile, gate_grad, out_stride_row, STRIDED)
