"""Elementwise kernels: the mirror of elementwise.cuh.

Which elements a program owns, how it reads and writes them, and what a call is launched
as. Tensors are matrices of n_elements / n_cols rows and n_cols columns with any two
strides, whose elements are counted row by row. A program's tile has a vector in every
row: VEC_SIZE neighbours, which a thread reads by one access.
"""

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.table import FIRST, Rung
from triton_kernels.common.vec import (
    VEC_BYTES,
    load,
    load_rows,
    row_vec_size,
    store,
    store_rows,
)

# 128 threads, each with two 16-byte accesses to a tensor. That is 16 elements of
# bfloat16 in a thread, where CUDA's kernels take 8: measured, Triton's lose nothing.
BLOCK_BYTES = 4096
NUM_WARPS = 4


@triton.jit
def load_elements(
    ptr,
    block_start,
    n_elements,
    n_cols,
    stride_row,
    stride_col,
    BLOCK_SIZE: tl.constexpr,
    VEC_SIZE: tl.constexpr,
    STRIDED: tl.constexpr,
):
    """A program's elements, in float32, and zeros past the end."""
    vectors = tl.arange(0, BLOCK_SIZE // VEC_SIZE)[:, None] * VEC_SIZE
    if STRIDED:
        vectors += block_start
        tile = load_rows(
            ptr, vectors, n_elements, n_cols, stride_row, stride_col, VEC_SIZE
        )
    else:
        offsets = vectors + tl.arange(0, VEC_SIZE)[None, :]
        tile = load(ptr + block_start, offsets, n_elements - block_start, BLOCK_SIZE)
    return tile.to(tl.float32)


@triton.jit
def store_elements(
    ptr,
    tile,
    block_start,
    n_elements,
    n_cols=0,
    stride_row=0,
    STRIDED: tl.constexpr = False,
):
    """Writes such a tile, rounded once; past the end nothing is written."""
    N_VECS: tl.constexpr = tile.shape[0]
    VEC_SIZE: tl.constexpr = tile.shape[1]
    vectors = tl.arange(0, N_VECS)[:, None] * VEC_SIZE
    tile = tile.to(ptr.dtype.element_ty)
    if STRIDED:
        vectors += block_start
        store_rows(ptr, vectors, tile, n_elements, n_cols, stride_row, VEC_SIZE)
    else:
        offsets = vectors + tl.arange(0, VEC_SIZE)[None, :]
        n_valid = n_elements - block_start
        store(ptr + block_start, offsets, tile, n_valid, N_VECS * VEC_SIZE)


def plan_elements(
    rung: int,
    first: Any,
    twin: Any,
    out: Tensor,
    n_elements: int,
    n_cols: int,
    strides_row: tuple[int, ...],
    strides_col: tuple[int, ...],
    block_bytes: int = BLOCK_BYTES,
) -> tuple[Any, tuple[int], Mapping[str, Any]]:
    """What runs the rung of an elementwise op: a kernel, its grid and its constants.

    Vectors of 16 bytes where every pointer and row allows them, else shorter ones.
    """
    if rung == Rung.FIRST:
        return first, (triton.cdiv(n_elements, FIRST["BLOCK_N"]),), FIRST
    block_size = block_bytes // out.element_size()
    vec_size = VEC_BYTES // out.element_size()
    strided = n_cols != n_elements or any(stride != 1 for stride in strides_col)
    if strided:
        has_gaps = max(strides_col) > 1
        vec_size = row_vec_size(out.element_size(), n_cols, strides_row, has_gaps)
    constants = {
        "BLOCK_SIZE": block_size,
        "VEC_SIZE": vec_size,
        "STRIDED": strided,
        "num_warps": NUM_WARPS,
        "enable_fp_fusion": True,
    }
    return twin, (triton.cdiv(n_elements, block_size),), constants
