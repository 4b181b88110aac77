"""Tiles of a product of matrices: where they lie, reading them, what ends them."""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from triton_kernels.common.epilogue import argument_scale, epilogue
from triton_kernels.common.vec import known_multiple


@triton.jit
def tile_at(index, n_tile_rows, n_tile_cols, GROUP_M: tl.constexpr):
    """Batch, row and column of the index-th tile.

    Tiles in groups of GROUP_M rows of tiles, column by column: what programs that run
    at the same time read of a and b is about as square as it can be, and stays in the
    L2.
    """
    batch = index // (n_tile_rows * n_tile_cols)
    index = index % (n_tile_rows * n_tile_cols)
    group_row = index // (GROUP_M * n_tile_cols) * GROUP_M
    index = index % (GROUP_M * n_tile_cols)
    n_group_rows = tl.minimum(n_tile_rows - group_row, GROUP_M)
    return batch, group_row + index % n_group_rows, index // n_group_rows


@triton.jit
def load_tile(
    ptr,
    outer,
    ks,
    k,
    n_outer,
    K,
    stride_outer,
    stride_k,
    K_IS_CONTIGUOUS: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    """A tile of a or b from k on, and zeros where the matrix ends.

    `outer` are the rows of a or the columns of b; they lie across `ks`.
    """
    if K_IS_CONTIGUOUS:
        stride_outer = known_multiple(stride_outer, DIVISIBILITY)
        K = known_multiple(K, DIVISIBILITY)
    else:
        stride_k = known_multiple(stride_k, DIVISIBILITY)
        n_outer = known_multiple(n_outer, DIVISIBILITY)
    ptr += tl.cast(k, tl.int64) * stride_k
    offsets = outer * stride_outer + ks.to(tl.int64) * stride_k
    return tl.load(ptr + offsets, mask=(outer < n_outer) & (ks < K - k), other=0.0)


@triton.jit
def load_bias(bias_ptr, cols, N):
    """The bias of some columns, or None where there is none.

    The columns have one dimension: those of a tile's shape would bring the sums into
    their order, through shared memory, in place of the few values of a bias.
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


class Address(NamedTuple):
    """All that a descriptor asks of a tensor; the memory may go while it stays."""

    address: int
    dtype: torch.dtype

    def data_ptr(self) -> int:
        """As a tensor has it."""
        return self.address


def has_vectors(element_size: int, *divisibilities: int) -> bool:
    """Whether matrices can be read and written by at least 8 bytes at a time.

    Where elements come one by one, a thread holds the addresses of as many, so that it
    has registers for half a tile only.
    """
    return element_size * min(divisibilities) >= 8


def divisibility(
    n_outer: int, K: int, stride_batch: int, stride_outer: int, stride_k: int
) -> int:
    """What divides all that decides how wide load_tile can read a matrix."""
    if stride_k == 1:
        return math.gcd(K, stride_batch, stride_outer, 16)
    return math.gcd(n_outer, stride_batch, stride_k, 16)
