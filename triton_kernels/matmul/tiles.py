"""Tiles of a product of matrices: their order, how they are read, their epilogue."""

import triton
import triton.language as tl

from triton_kernels.common.epilogue import argument_scale, epilogue
from triton_kernels.common.vec import known_multiple


@triton.jit
def tile_at(index, n_tile_rows, n_tile_cols, GROUP_M: tl.constexpr = 8):
    """Batch, row and column of the index-th tile.

    Tiles are counted column by column within GROUP_M rows of tiles, so that programs
    that run at the same time read few different rows and columns, which stay in the L2.
    """
    batch = index // (n_tile_rows * n_tile_cols)
    index = index % (n_tile_rows * n_tile_cols)
    group_row = index // (GROUP_M * n_tile_cols) * GROUP_M
    index = index % (GROUP_M * n_tile_cols)
    n_group_rows = tl.minimum(n_tile_rows - group_row, GROUP_M)
    return batch, group_row + index % n_group_rows, index // n_group_rows


@triton.jit
def load_tile(
    matrix, outer, ks, k, K, K_IS_CONTIGUOUS: tl.constexpr, DIVISIBILITY: tl.constexpr
):
    """A tile of a or b from k on, with zeros past the ends of the matrix.

    `matrix` says where that begins, how many rows of a or columns of b it has, and the
    strides along those and along k. `outer` are the tile's rows or columns; `ks` lie
    along the other dimension. The size and the stride that decide how wide it can be
    read are multiples of DIVISIBILITY.
    """
    ptr, n_outer, stride_outer, stride_k = matrix
    if K_IS_CONTIGUOUS:
        stride_outer = known_multiple(stride_outer, DIVISIBILITY)
        K = known_multiple(K, DIVISIBILITY)
    else:
        stride_k = known_multiple(stride_k, DIVISIBILITY)
        n_outer = known_multiple(n_outer, DIVISIBILITY)
    ptr += tl.cast(k, tl.int64) * stride_k
    offsets = outer * stride_outer + ks * stride_k
    return tl.load(ptr + offsets, mask=(outer < n_outer) & (ks < K - k), other=0.0)


@triton.jit
def load_bias(bias_ptr, cols, N):
    """The bias of some columns, or None where there is none.

    `cols` have one dimension: as a row of the tile's shape they would make the compiler
    move the sums through shared memory, into their order, and not the few biases.
    """
    bias = None
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
    return bias


@triton.jit
def finish(accumulator, bias, ACTIVATION: tl.constexpr, dtype):
    """Bias and activation in float32, then the only rounding."""
    if bias is not None:
        bias = bias.to(tl.float32)[None, :] * argument_scale(ACTIVATION, dtype)
    return epilogue(accumulator, bias, ACTIVATION, dtype).to(dtype)


@triton.jit
def halves_of(sums):
    """The left and the right half of a tile's columns.

    Each thread has some of either, so that nothing moves.
    """
    halves = sums.reshape([sums.shape[0], 2, sums.shape[1] // 2])
    return halves.permute([0, 2, 1]).split()
