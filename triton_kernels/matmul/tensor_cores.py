"""The third rung: the tensor cores multiply, while the next tiles are on their way.

For float16 and bfloat16, and for float32 where tf32 will do, tl.dot becomes
instructions of the tensor cores. NUM_STAGES tiles of a and b are in shared memory at a
time: those that are multiplied, and those that cp.async still copies. Programs that run
at the same time own tiles that lie together, so that they find in the L2 what others
have read. This is the kernel for GPUs before Hopper, and for what TMA cannot copy.
"""

import math

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.epilogue import ACTIVATIONS
from triton_kernels.common.math import INTERPRETED
from triton_kernels.common.tiles import (
    divisibility,
    finish,
    has_vectors,
    load_bias,
    load_tile,
    tile_at,
)
from triton_kernels.common.vec import known_multiple

GROUP_M = 8
NUM_STAGES = 4
NUM_WARPS = 8
NUM_SMS = 132  # of an H200


@triton.jit
def round_to_tf32(x):
    """The nearest numbers of 11 significant bits; the tensor cores cut off the rest."""
    if INTERPRETED:
        # Away from zero where two are as near. inf and NaN, whose sum is NaN, stay.
        bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
        rounded = tl.where(
            tl.abs(x) < float("inf"), bits.to(tl.float32, bitcast=True), x
        )
    else:
        rounded = tl.inline_asm_elementwise(
            "cvt.rna.tf32.f32 $0, $1;",
            "=r, f",
            [x],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    return rounded


@triton.jit
def matmul_tensor_cores_kernel(
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
    GROUP_M: tl.constexpr,
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
    batch, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols, GROUP_M)
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
        if a.dtype == tl.float32:
            a, b = round_to_tf32(a), round_to_tf32(b)
        accumulator = tl.dot(a, b, accumulator, input_precision="tf32")

    # -- store: after the epilogue, rounded once
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    out = finish(accumulator, load_bias(bias_ptr, cols, N), ACTIVATION, dtype)
    n_cols = known_multiple(N, OUT_DIVISIBILITY)
    out_ptr += (batch * M + rows) * n_cols + cols[None, :]
    tl.store(out_ptr, out, mask=(rows < M) & (cols[None, :] < n_cols))


def matmul_tensor_cores(
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
    """Launches matmul_tensor_cores_kernel on the current device and stream.

    The tiles fit in the 99 KB of shared memory that the smallest GPUs have, and are
    small where large ones would leave multiprocessors idle.
    """
    n_large_tiles = n_batches * triton.cdiv(M, 128) * triton.cdiv(N, 128)
    a_divisibility = divisibility(M, K, a_stride_batch, a_stride_row, a_stride_col)
    b_divisibility = divisibility(N, K, b_stride_batch, b_stride_col, b_stride_row)
    out_divisibility = math.gcd(N, 16)
    divisibilities = a_divisibility, b_divisibility, out_divisibility
    block_n = 128 if n_large_tiles >= NUM_SMS else 64
    block_m = block_n if has_vectors(out.element_size(), *divisibilities) else 64
    n_tiles = n_batches * triton.cdiv(M, block_m) * triton.cdiv(N, block_n)
    matmul_tensor_cores_kernel[(n_tiles,)](
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
        BLOCK_N=block_n,
        BLOCK_K=64 // out.element_size(),
        GROUP_M=GROUP_M,
        A_ROW_MAJOR=a_stride_col == 1,
        A_DIVISIBILITY=a_divisibility,
        B_ROW_MAJOR=b_stride_row != 1,
        B_DIVISIBILITY=b_divisibility,
        OUT_DIVISIBILITY=out_divisibility,
        ACTIVATION=ACTIVATIONS[activation],
        num_warps=NUM_WARPS,
        num_stages=NUM_STAGES,
        enable_fp_fusion=True,
    )
