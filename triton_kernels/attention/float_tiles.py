"""Tiles of which threads themselves multiply and add float32, as IEEE 754 has it."""

import triton
import triton.language as tl

from triton_kernels.attention.tiles import load_tile


@triton.jit
def add_product(sums, x, y):
    """Sums + x y, each product of two tiles added up by itself, in float32.

    Along a single chain of additions the rounding errors of hundreds would pile up. Of
    a + the compiler would make one chain.
    """
    step = tl.dot(x.to(tl.float32), y.to(tl.float32), input_precision="ieee")
    return tl.fma(step, tl.full(step.shape, 1.0, tl.float32), sums)


@triton.jit
def dot_of_rows(left, right, head_dim, BLOCK_K: tl.constexpr):
    """The product of some rows of a matrix with some of another, in float32.

    Each is a matrix, its first row, a range that counts from it, and where rows end.
    """
    left_matrix, left_start, left_rows, left_end = left
    right_matrix, right_start, right_rows, right_end = right
    ks = tl.arange(0, BLOCK_K)
    sums = tl.zeros([left_rows.shape[0], right_rows.shape[0]], tl.float32)
    for d in range(0, head_dim, BLOCK_K):
        x = load_tile(
            *(left_matrix, left_start, left_rows[:, None], d + ks[None, :]),
            *(left_end, head_dim),
        )
        y = load_tile(
            *(right_matrix, right_start, right_rows[None, :], d + ks[:, None]),
            *(right_end, head_dim),
        )
        sums = add_product(sums, x, y)
    return sums
