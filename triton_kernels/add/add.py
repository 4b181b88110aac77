"""Adds two tensors, either of which may be broadcast.

  out[i] = x[i] + y[i]

Layout   out: contiguous. x, y: read as (n_elements / n_cols, n_cols) with any two
         strides, 0 along a broadcast dimension.
Traffic  reads 2 and writes 1 element each, once: the ceiling is memory bandwidth at 2
         reads to 1 write.
Limits   accumulates in float32, so float16 and bfloat16 are rounded once.
Mirror   csrc/add/add.cu
Source   Triton's tutorial 01 (vector addition)
"""

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.vec import load, load_strided, store

# 128 threads, each with one 16-byte access to a tensor: of 16-bit elements as many as
# in CUDA's kernel. On an H200 two accesses are no faster, and of bfloat16 slower.
BLOCK_BYTES = 2048
NUM_WARPS = 4


@triton.jit
def add_kernel(
    out_ptr,  # (n_elements)
    x_ptr,  # (n_elements / n_cols, n_cols)
    y_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
    x_stride_row,
    x_stride_col,
    y_stride_row,
    y_stride_col,
    BLOCK_SIZE: tl.constexpr,
    STRIDED: tl.constexpr,
):
    # -- tile: a program owns BLOCK_SIZE neighbouring elements
    block_start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    n_valid = n_elements - block_start
    offsets = tl.arange(0, BLOCK_SIZE)

    # -- load: past the end nothing is read
    if STRIDED:
        elements = block_start + offsets
        x = load_strided(
            x_ptr, elements, n_elements, n_cols, x_stride_row, x_stride_col
        )
        y = load_strided(
            y_ptr, elements, n_elements, n_cols, y_stride_row, y_stride_col
        )
    else:
        x = load(x_ptr + block_start, offsets, n_valid, BLOCK_SIZE)
        y = load(y_ptr + block_start, offsets, n_valid, BLOCK_SIZE)

    # -- compute: in float32, rounded once
    out = x.to(tl.float32) + y.to(tl.float32)

    # -- store: past the end nothing is written
    out = out.to(out_ptr.dtype.element_ty)
    store(out_ptr + block_start, offsets, out, n_valid, BLOCK_SIZE)


def add(
    out: Tensor,
    x: Tensor,
    y: Tensor,
    n_elements: int,
    n_cols: int,
    x_stride_row: int,
    x_stride_col: int,
    y_stride_row: int,
    y_stride_col: int,
    rung: int,
) -> None:
    """Launches add_kernel on the current device and stream."""
    block_size = BLOCK_BYTES // out.element_size()
    add_kernel[(triton.cdiv(n_elements, block_size),)](
        out,
        x,
        y,
        n_elements,
        n_cols,
        x_stride_row,
        x_stride_col,
        y_stride_row,
        y_stride_col,
        BLOCK_SIZE=block_size,
        STRIDED=n_cols != n_elements or x_stride_col != 1 or y_stride_col != 1,
        num_warps=NUM_WARPS,
        enable_fp_fusion=True,
    )
