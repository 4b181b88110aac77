"""Reading and writing a tile of neighbouring elements: the mirror of vec.cuh."""

import triton
import triton.language as tl

VEC_BYTES = 16  # the widest access that a thread of an H200 can make


@triton.jit
def load(ptr, offsets, n_valid, BLOCK_SIZE: tl.constexpr):
    """The elements at ptr + offsets, and zeros from n_valid on.

    A mask that may end anywhere cuts every access down to one element. So only a tile
    that is not full has one.
    """
    if n_valid >= BLOCK_SIZE:
        x = tl.load(ptr + offsets)
    else:
        x = tl.load(ptr + offsets, mask=offsets < n_valid, other=0.0)
    return x


@triton.jit
def store(ptr, offsets, x, n_valid, BLOCK_SIZE: tl.constexpr):
    """Writes x to ptr + offsets, as far as these exist."""
    if n_valid >= BLOCK_SIZE:
        tl.store(ptr + offsets, x)
    else:
        tl.store(ptr + offsets, x, mask=offsets < n_valid)


@triton.jit
def known_multiple(x, DIVISIBILITY: tl.constexpr):
    """x, in a form that shows the compiler that DIVISIBILITY divides it.

    Of an argument Triton notices only whether 16 divides it; but 4 elements of float32,
    or 8 of 16 bits, are enough for an access of 16 bytes.
    """
    return x // DIVISIBILITY * DIVISIBILITY


@triton.jit
def row_offsets(vectors, n_cols, stride_row, stride_col, VEC_SIZE: tl.constexpr):
    """Where the elements of vectors lie in a matrix, which has n_cols columns.

    `vectors`, a column, are the first elements of each, counted row by row. A row holds
    whole vectors, so one division finds the row of VEC_SIZE elements. The compiler has
    to be told that each vector begins at a multiple of its size.
    """
    rows = vectors // n_cols
    cols = vectors - rows * n_cols  # `%` would divide again
    starts = tl.multiple_of(rows * stride_row + cols * stride_col, [1, VEC_SIZE])
    return starts + tl.arange(0, VEC_SIZE)[None, :] * stride_col


@triton.jit
def load_rows(
    ptr, vectors, n_elements, n_cols, stride_row, stride_col, VEC_SIZE: tl.constexpr
):
    """The elements that row_offsets finds, and zeros past the end."""
    offsets = row_offsets(vectors, n_cols, stride_row, stride_col, VEC_SIZE)
    return tl.load(ptr + offsets, mask=vectors < n_elements, other=0.0)


@triton.jit
def store_rows(ptr, vectors, x, n_elements, n_cols, stride_row, VEC_SIZE: tl.constexpr):
    """Writes x to rows whose columns are neighbours, as far as these exist."""
    offsets = row_offsets(vectors, n_cols, stride_row, 1, VEC_SIZE)
    tl.store(ptr + offsets, x, mask=vectors < n_elements)
