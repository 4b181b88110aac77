"""The first rung: a program computes a tile of elements, masked at the end.

A division finds the place of an element in a tensor with any strides.
"""

import triton
import triton.language as tl

from triton_kernels.common.activation import activate


@triton.jit
def glu_first_kernel(
    out_ptr,  # (n_elements)
    value_ptr,  # (n_elements / n_cols, n_cols)
    gate_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
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
    value = tl.load(
        value_ptr + row * value_stride_row + col * value_stride_col, mask=mask
    )
    gate = tl.load(gate_ptr + row * gate_stride_row + col * gate_stride_col, mask=mask)

    # -- compute: in float32
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    value, gate = value.to(tl.float32), gate.to(tl.float32)
    out = value * activate(gate, ACTIVATION, dtype)

    # -- store: rounded once
    tl.store(out_ptr + i, out.to(dtype), mask=mask)
