"""Reading and writing a tile of neighbouring elements: the mirror of vec.cuh."""

import triton
import triton.language as tl


@triton.jit
def load(ptr, offsets, n_valid, BLOCK_SIZE: tl.constexpr):
    """The elements at ptr + offsets, of which those from n_valid on do not exist.

    A mask that ends anywhere would cut every access down to one element, in all tiles;
    so only the tile that is not full has one.
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
def load_strided(ptr, elements, n_elements, n_cols, stride_row, stride_col):
    """Elements, counted row by row, of a matrix with n_cols columns and any strides."""
    rows = elements // n_cols
    cols = elements % n_cols
    offsets = rows * stride_row + cols * stride_col
    return tl.load(ptr + offsets, mask=elements < n_elements, other=0.0)


@triton.jit
def known_multiple(x, DIVISIBILITY: tl.constexpr):
    """x, in a form that shows the compiler what divides it.

    Triton finds out by itself only what 16 divides; but 4 elements of float32, or 8 of
    16 bits, are enough for an access of 16 bytes.
    """
    return x // DIVISIBILITY * DIVISIBILITY
