"""The twin: each thread reads and writes several elements, by accesses of 16 bytes.

Triton finds the accesses by itself, where it knows which elements are neighbours.
"""

import triton
import triton.language as tl

from triton_kernels.common.vec import load, load_rows, store


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
    VEC_SIZE: tl.constexpr,
    STRIDED: tl.constexpr,
):
    # -- tile: a program owns BLOCK_SIZE neighbouring elements, a vector in every row
    block_start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    n_valid = n_elements - block_start
    vectors = tl.arange(0, BLOCK_SIZE // VEC_SIZE)[:, None] * VEC_SIZE
    offsets = vectors + tl.arange(0, VEC_SIZE)[None, :]

    # -- load: past the end nothing is read
    if STRIDED:
        vectors += block_start
        x = load_rows(
            x_ptr, vectors, n_elements, n_cols, x_stride_row, x_stride_col, VEC_SIZE
        )
        y = load_rows(
            y_ptr, vectors, n_elements, n_cols, y_stride_row, y_stride_col, VEC_SIZE
        )
    else:
        x = load(x_ptr + block_start, offsets, n_valid, BLOCK_SIZE)
        y = load(y_ptr + block_start, offsets, n_valid, BLOCK_SIZE)

    # -- compute: in float32
    out = x.to(tl.float32) + y.to(tl.float32)

    # -- store: rounded once; past the end nothing is written
    out = out.to(out_ptr.dtype.element_ty)
    store(out_ptr + block_start, offsets, out, n_valid, BLOCK_SIZE)
