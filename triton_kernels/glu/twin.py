"""The twin: a thread owns several elements, and accesses 16 bytes at a time."""

import triton
import triton.language as tl

from triton_kernels.common.activation import activate
from triton_kernels.common.elementwise import load_elements, own_tile, store_elements


@triton.jit
def glu_kernel(
    out_ptr,  # (n_elements)
    value_ptr,  # (n_elements / n_cols, n_cols)
    gate_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
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
    value = load_elements(value_ptr, tile, value_stride_row, value_stride_col, STRIDED)
    gate = load_elements(gate_ptr, tile, gate_stride_row, gate_stride_col, STRIDED)

    # -- compute: in float32
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    value, gate = value.to(tl.float32), gate.to(tl.float32)
    out = value * activate(gate, ACTIVATION, dtype)

    # -- store: rounded once; past the end nothing is written
    store_elements(out_ptr, tile, out)
