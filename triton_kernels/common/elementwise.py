"""Elementwise kernels: the mirror of elementwise.cuh.

Which elements a program owns, how it reads and writes them, and what a call is launched
as. Tensors are matrices of n_elements / n_cols rows and n_cols columns with any two
strides, whose elements are counted row by row. A program's tile has a vector in every
row: VEC_SIZE neighbours, which a thread reads by one access.
"""

import math
from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.table import FIRST, Rung
from triton_kernels.common.vec import VEC_BYTES, load, load_rows, store, store_rows

# 128 threads, each with two 16-byte accesses to a tensor. That is 16 elements of
# bfloat16 in a thread, where CUDA's kernels take 8: measured, Triton's lose nothing.
BLOCK_BYTES = 4096
NUM_WARPS = 4


@triton.jit
def own_tile(n_elements, n_cols, BLOCK_SIZE: tl.constexpr, VEC_SIZE: tl.constexpr):
    """Which elements a program owns: a tile with a vector in every row.

    Returns where it begins, its elements counted from there, and the sizes of the
    tensors.
    """
    block_start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    vectors = tl.arange(0, BLOCK_SIZE // VEC_SIZE)[:, None] * VEC_SIZE
    offsets = vectors + tl.arange(0, VEC_SIZE)[None, :]
    return block_start, offsets, n_elements, n_cols


@triton.jit
def load_elements(ptr, tile, stride_row, stride_col, STRIDED: tl.constexpr):
    """A program's elements of a tensor, and zeros past the end."""
    block_start, offsets, n_elements, n_cols = tile
    N_VECS: tl.constexpr = offsets.shape[0]
    VEC_SIZE: tl.constexpr = offsets.shape[1]
    if STRIDED:
        vectors = block_start + tl.arange(0, N_VECS)[:, None] * VEC_SIZE
        x = load_rows(
            ptr, vectors, n_elements, n_cols, stride_row, stride_col, VEC_SIZE
        )
    else:
        x = load(
            ptr + block_start, offsets, n_elements - block_start, N_VECS * VEC_SIZE
        )
    return x


@triton.jit
def store_elements(ptr, tile, x, stride_row=0, STRIDED: tl.constexpr = False):
    """Writes a program's elements, rounded once; past the end nothing is written."""
    block_start, offsets, n_elements, n_cols = tile
    N_VECS: tl.constexpr = offsets.shape[0]
    VEC_SIZE: tl.constexpr = offsets.shape[1]
    x = x.to(ptr.dtype.element_ty)
    if STRIDED:
        vectors = block_start + tl.arange(0, N_VECS)[:, None] * VEC_SIZE
        store_rows(ptr, vectors, x, n_elements, n_cols, stride_row, VEC_SIZE)
    else:
        n_valid = n_elements - block_start
        store(ptr + block_start, offsets, x, n_valid, N_VECS * VEC_SIZE)


def plan_elements(
    rung: int,
    kernels: tuple[Any, Any],
    out: Tensor,
    n_elements: int,
    n_cols: int,
    strides: tuple[int, ...],
    block_bytes: int = BLOCK_BYTES,
    whole_vectors: bool = False,
) -> tuple[Any, tuple[int], Mapping[str, Any]]:
    """What runs a rung of an elementwise op: its kernel, a grid and its constants.

    `kernels` are those of the first rung and of the twin. `strides` are stride_row and
    stride_col of each input in turn; ahead of them comes the stride_row of the outputs,
    where their rows need not be neighbours. A program of the twin owns `block_bytes` of
    each tensor. With `whole_vectors` a vector has 16 bytes or one element, never
    something in between.
    """
    first, twin = kernels
    if rung == Rung.FIRST:
        return first, (triton.cdiv(n_elements, FIRST["BLOCK_N"]),), FIRST
    element_size = out.element_size()
    block_size = block_bytes // element_size
    vec_size = VEC_BYTES // element_size
    n_outputs = len(strides) % 2
    strides_col = strides[n_outputs + 1 :: 2]
    strided = n_cols != n_elements or any(stride != 1 for stride in strides_col)
    if strided:
        # The longest vector that all rows begin and end at multiples of, unless there
        # are gaps between columns.
        strides_row = strides[:n_outputs] + strides[n_outputs::2]
        longest = vec_size
        vec_size = math.gcd(longest, n_cols, *strides_row)
        if max(strides_col) > 1 or (whole_vectors and vec_size < longest):
            vec_size = 1
    constants = {
        "BLOCK_SIZE": block_size,
        "VEC_SIZE": vec_size,
        "STRIDED": strided,
        "num_warps": NUM_WARPS,
        "enable_fp_fusion": True,
    }
    return twin, (triton.cdiv(n_elements, block_size),), constants
