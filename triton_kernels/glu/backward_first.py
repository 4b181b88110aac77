"""The first rung: a program computes both gradients of a tile of elements."""

import triton
import triton.language as tl

from triton_kernels.common.activation import activate, activate_backward


@triton.jit
def glu_backward_first_kernel(
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
    BLOCK_N: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    # -- tile: a program owns BLOCK_N neighbouring elements
    i = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = i < n_elements
    row, col = i // n_cols, i % n_cols

    # -- load: a tile of each tensor
    grad = tl.load(grad_ptr + row * grad_stride_row + col * grad_stride_col, mask=mask)
    value = tl.load(
        value_ptr + row * value_stride_row + col * value_stride_col, mask=mask
    )
    gate = tl.load(gate_ptr + row * gate_stride_row + col * gate_stride_col, mask=mask)

    # -- compute: in float32. The derivative comes first: where it is 0, grad * value
    # may be inf
    dtype: tl.constexpr = value_grad_ptr.dtype.element_ty
    grad, value, gate = grad.to(tl.float32), value.to(tl.float32), gate.to(tl.float32)
    gate_grad = activate_backward(grad, gate, ACTIVATION, dtype) * value
    value_grad = grad * activate(gate, ACTIVATION, dtype)

    # -- store: rounded once
    tl.store(
        value_grad_ptr + row * out_stride_row + col, value_grad.to(dtype), mask=mask
    )
    tl.store(gate_grad_ptr + row * out_stride_row + col, gate_grad.to(dtype), mask=mask)
