"""Copies of operands that the twin cannot read in place.

Rows have to begin at multiples of 16 bytes: TMA asks for that. Without it, each element
is a load of its own in every program that needs it. From shared memory, tensor cores
take tf32 along k alone: of two operands of other rows one is copied transposed. For
tf32x3, one operand is split in two. A copy costs a launch, and two accesses to memory
for each element.
"""

import triton
import triton.language as tl

from triton_kernels.common.griddepcontrol import (
    griddepcontrol_launch_dependents,
    griddepcontrol_wait,
)
from triton_kernels.common.vec import VEC_BYTES, known_multiple
from triton_kernels.matmul.model import LINE_BYTES
from triton_kernels.matmul.split import split_float

ROWS, COLS = 8, 256  # that a program copies
# That it copies transposed. Of a square, the compiler would have a thread load as many
# neighbours as it stores, even where they come one by one.
TRANSPOSED_ROWS, TRANSPOSED_COLS = 32, 128


def stride_of(n_cols: int, element_bytes: int) -> int:
    """How many elements lie between rows of a copy: whole vectors, or lines."""
    step_bytes = VEC_BYTES if n_cols * element_bytes < 4 * LINE_BYTES else LINE_BYTES
    step = step_bytes // element_bytes
    return -(-n_cols // step) * step


@triton.jit
def store_planes(copy_ptr, copy_stride_plane, x, mask, NUM_PLANES: tl.constexpr):
    """Stores elements or, to two planes, their large and their small parts."""
    if NUM_PLANES == 2:
        large, small = split_float(x)
        tl.store(copy_ptr, large, mask=mask)
        tl.store(copy_ptr + copy_stride_plane, small, mask=mask)
    else:
        tl.store(copy_ptr, x, mask=mask)


@triton.jit(do_not_specialize=["n_rows", "stride_row", "stride_batch"])
def matmul_align_kernel(
    copy_ptr,  # (NUM_PLANES, n_batches, n_rows, n_cols), its rows copy_stride_row apart
    x_ptr,  # (n_batches, n_rows, n_cols)
    n_rows,
    n_cols,
    stride_batch,
    stride_row,
    copy_stride_row,
    copy_stride_plane,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
    NUM_PLANES: tl.constexpr,
):
    """Rows are those in memory, whatever they are in the product."""
    # -- tile: BLOCK_M rows, BLOCK_N columns
    griddepcontrol_launch_dependents()
    n_row_blocks, n_col_blocks = tl.cdiv(n_rows, BLOCK_M), tl.cdiv(n_cols, BLOCK_N)
    index = tl.program_id(0).to(tl.int64)
    batch = index // (n_row_blocks * n_col_blocks)
    index = index % (n_row_blocks * n_col_blocks)
    rows = index // n_col_blocks * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = index % n_col_blocks * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]

    # -- store: neighbouring elements, by neighbouring threads
    is_inside = (rows < n_rows) & (cols < known_multiple(n_cols, DIVISIBILITY))
    x_ptr += (
        batch * known_multiple(stride_batch, DIVISIBILITY)
        + rows * known_multiple(stride_row, DIVISIBILITY)
        + cols
    )
    copy_ptr += (batch * n_rows + rows) * copy_stride_row + cols
    griddepcontrol_wait()
    x = tl.load(x_ptr, mask=is_inside)
    store_planes(copy_ptr, copy_stride_plane, x, is_inside, NUM_PLANES)


@triton.jit(
    do_not_specialize=[
        *("n_rows", "n_cols", "stride_batch", "stride_row"),
        *("copy_stride_row", "copy_stride_plane"),
    ]
)
def matmul_transpose_kernel(
    copy_ptr,  # (NUM_PLANES, n_batches, n_cols, n_rows), its rows copy_stride_row apart
    x_ptr,  # (n_batches, n_rows, n_cols)
    n_rows,
    n_cols,
    stride_batch,
    stride_row,
    copy_stride_row,
    copy_stride_plane,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
    NUM_PLANES: tl.constexpr,
):
    """Writes whole vectors: between the rows of the copy, zeros."""
    # -- tile: BLOCK_M rows, BLOCK_N columns
    griddepcontrol_launch_dependents()
    n_row_blocks, n_col_blocks = tl.cdiv(n_rows, BLOCK_M), tl.cdiv(n_cols, BLOCK_N)
    index = tl.program_id(0).to(tl.int64)
    batch = index // (n_row_blocks * n_col_blocks)
    index = index % (n_row_blocks * n_col_blocks)
    row = index // n_col_blocks * BLOCK_M
    col = index % n_col_blocks * BLOCK_N

    # -- load: neighbouring columns, by neighbouring threads
    rows = row + tl.arange(0, BLOCK_M)[:, None]
    cols = col + tl.arange(0, BLOCK_N)[None, :]
    x_ptr += batch * known_multiple(stride_batch, DIVISIBILITY)
    x_ptr += rows * known_multiple(stride_row, DIVISIBILITY) + cols
    is_inside = (rows < n_rows) & (cols < known_multiple(n_cols, DIVISIBILITY))
    griddepcontrol_wait()
    x = tl.load(x_ptr, mask=is_inside, other=0.0)

    # -- store: neighbouring rows, by neighbouring threads
    rows = row + tl.arange(0, BLOCK_M)[None, :]
    cols = col + tl.arange(0, BLOCK_N)[:, None]
    stride = known_multiple(copy_stride_row, 16 // x.dtype.itemsize)  # whole vectors
    copy_ptr += (batch * n_cols + cols) * stride + rows
    is_inside = (rows < stride) & (cols < n_cols)
    plane = known_multiple(copy_stride_plane, 16 // x.dtype.itemsize)
    store_planes(copy_ptr, plane, x.trans(), is_inside, NUM_PLANES)
