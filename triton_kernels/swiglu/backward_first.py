"""The first rung: a program computes both gradients of a tile of elements."""

import triton
import triton.language as tl

from triton_kernels.common.math import silu, silu_derivative


@triton.jit
def swiglu_backward_first_kernel(
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
    BLOCK_N: tl.constexpr,
):
    # -- tile: a program owns BLOCK_N neighbouring elements
    i = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = i < n_elements
    row, col = i // n_cols, i % n_cols

    # -- load: a tile of each tensor
    grad = tl.load(grad_ptr + row * grad_stride_row + col * grad_stride_col, mask=mask)
    gate = tl.load(gate_ptr + row * gate_stride_row + col * gate_stride_col, mask=mask)
    up = tl.load(up_ptr + row * up_stride_row + col * up_stride_col, mask=mask)

    # -- compute: in float32. The derivative comes first: where it is 0, grad * up
    # may be inf
    dtype: tl.constexpr = gate_grad_ptr.dtype.element_ty
    grad, gate, up = grad.to(tl.float32), gate.to(tl.float32), up.to(tl.float32)
    gate_grad = grad * silu_derivative(gate, dtype) * up
    up_grad = grad * silu(gate, dtype)

    # -- store: rounded once
    tl.store(gate_grad_ptr + row * out_stride_row + col, gate_grad.to(dtype), mask=mask)
    tl.store(up_grad_ptr + row * out_stride_row + col, up_grad.to(dtype), mask=mask)
