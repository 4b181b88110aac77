"""The twin: a thread owns several elements, and accesses 16 bytes at a time."""

import triton
import triton.language as tl

from triton_kernels.common.elementwise import load_elements, own_tile, store_elements
from triton_kernels.common.math import silu


@triton.jit
def swiglu_kernel(
    out_ptr,  # (n_elements)
    gate_ptr,  # (n_elements / n_cols, n_cols)
    up_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
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
    gate = load_elements(gate_ptr, tile, gate_stride_row, gate_stride_col, STRIDED)
    up = load_elements(up_ptr, tile, up_stride_row, up_stride_col, STRIDED)

    # -- compute: in float32
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    gate, up = gate.to(tl.float32), up.to(tl.float32)
    out = silu(gate, dtype) * up

    # -- store: rounded once; past the end nothing is written
    store_elements(out_ptr, tile, out)
