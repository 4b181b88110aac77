"""The second rung: a larger tile, and tl.dot, whose operands are in shared memory.

An element that has come from global memory serves 128 multiplications, one that has
come from shared memory 8, from registers. At the precision "ieee" the threads multiply
and add themselves. This is the kernel for float32 as IEEE 754 has it, which no tensor
core computes.
"""

import math

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.epilogue import ACTIVATIONS
from triton_kernels.common.tiles import (
    divisibility,
    finish,
    has_vectors,
    load_bias,
    load_tile,
    tile_at,
)
from triton_kernels.common.vec import known_multiple

BLOCK_N = 128
BLOCK_K = 16
NUM_WARPS = 8


@triton.jit
def matmul_tiled_kernel(
    out_ptr,  # (n_batches, M, N)
    a_ptr,  # (n_batches, M, K)
    b_ptr,  # (n_batches, K, N)
    bias_ptr,  # (N), or None
    M,
    N,
    K,
    a_stride_batch,
    a_stride_row,
    a_stride_col,
    b_stride_batch,
    b_stride_row,
    b_stride_col,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    A_DIVISIBILITY: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
    B_DIVISIBILITY: tl.constexpr,
    OUT_DIVISIBILITY: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    # -- tile: a program owns BLOCK_M x BLOCK_N elements
    n_tile_rows, n_tile_cols = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    index = tl.program_id(0).to(tl.int64)
    batch, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols, GROUP_M=1)
    rows = tile_row * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tile_col * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_ptr += batch * known_multiple(a_stride_batch, A_DIVISIBILITY)
    b_ptr += batch * known_multiple(b_stride_batch, B_DIVISIBILITY)

    # -- compute: in float32
    accumulator = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, K, BLOCK_K):
        a = load_tile(
            a_ptr,
            rows,
            ks[None, :],
            k,
            M,
            K,
            a_stride_row,
            a_stride_col,
            A_ROW_MAJOR,
            A_DIVISIBILITY,
        )
        b = load_tile(
            b_ptr,
            cols[None, :],
            ks[:, None],
            k,
            N,
            K,
            b_stride_col,
            b_stride_row,
            not B_ROW_MAJOR,
            B_DIVISIBILITY,
        )
        a, b = a.to(tl.float32), b.to(tl.float32)
        accumulator = tl.dot(a, b, accumulator, input_precision="ieee")

    # -- store: after the epilogue, rounded once
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    out = finish(accumulator, load_bias(bias_ptr, cols, N), ACTIVATION, dtype)
    n_cols = known_multiple(N, OUT_DIVISIBILITY)
    out_ptr += (batch * M + rows) * n_cols + cols[None, :]
    tl.store(out_ptr, out, mask=(rows < M) & (cols[None, :] < n_cols))


def matmul_tiled(
    out: Tensor,
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    n_batches: int,
    M: int,
    N: int,
    K: int,
    a_stride_batch: int,
    a_stride_row: int,
    a_stride_col: int,
    b_stride_batch: int,
    b_stride_row: int,
    b_stride_col: int,
    activation: int,
) -> None:
    """Launches matmul_tiled_kernel on the current device and stream."""
    a_divisibility = divisibility(M, K, a_stride_batch, a_stride_row, a_stride_col)
    b_divisibility = divisibility(N, K, b_stride_batch, b_stride_col, b_stride_row)
    out_divisibility = math.gcd(N, 16)
    divisibilities = a_divisibility, b_divisibility, out_divisibility
    block_m = 128 if has_vectors(out.element_size(), *divisibilities) else 64
    n_tiles = n_batches * triton.cdiv(M, block_m) * triton.cdiv(N, BLOCK_N)
    matmul_tiled_kernel[(n_tiles,)](
        out,
        a,
        b,
        bias,
        M,
        N,
        K,
        a_stride_batch,
        a_stride_row,
        a_stride_col,
        b_stride_batch,
        b_stride_row,
        b_stride_col,
        BLOCK_M=block_m,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K,
        A_ROW_MAJOR=a_stride_col == 1,
        A_DIVISIBILITY=a_divisibility,
        B_ROW_MAJOR=b_stride_row != 1,
        B_DIVISIBILITY=b_divisibility,
        OUT_DIVISIBILITY=out_divisibility,
        ACTIVATION=ACTIVATIONS[activation],
        num_warps=NUM_WARPS,
        num_stages=2,
        enable_fp_fusion=True,
    )
