"""The second rung: a larger tile, and tl.dot, whose operands are in shared memory.

An element loaded from global memory serves 128 multiplications, one loaded from shared
memory 8, from registers. At the precision "ieee" the threads themselves multiply and
add float32 as IEEE 754 has it, which no tensor core does.
"""

import triton
import triton.language as tl

from triton_kernels.common.vec import known_multiple
from triton_kernels.matmul.tiles import finish, load_bias, load_tile, tile_at


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
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptr += batch * known_multiple(a_stride_batch, A_DIVISIBILITY)
    b_ptr += batch * known_multiple(b_stride_batch, B_DIVISIBILITY)
    a_matrix = a_ptr, M, a_stride_row, a_stride_col
    b_matrix = b_ptr, N, b_stride_col, b_stride_row

    # -- compute: in float32. Sums over K_PER_SUM entries of K are added up: along a
    # single chain of additions the rounding errors of thousands would pile up
    K_PER_SUM: tl.constexpr = 256
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    accumulator = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, K, BLOCK_K):
        a = load_tile(a_matrix, rows, ks[None, :], k, K, A_ROW_MAJOR, A_DIVISIBILITY)
        b = load_tile(
            b_matrix, cols[None, :], ks[:, None], k, K, not B_ROW_MAJOR, B_DIVISIBILITY
        )
        a, b = a.to(tl.float32), b.to(tl.float32)
        accumulator = tl.dot(a, b, accumulator, input_precision="ieee")
        if (k + BLOCK_K) % K_PER_SUM == 0:
            sums += accumulator
            accumulator = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    accumulator += sums

    # -- store: after the epilogue, rounded once
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    out = finish(accumulator, load_bias(bias_ptr, cols, N), ACTIVATION, dtype)
    n_cols = known_multiple(N, OUT_DIVISIBILITY)
    out_ptr += (batch * M + rows) * n_cols + cols[None, :]
    tl.store(out_ptr, out, mask=(rows < M) & (cols[None, :] < n_cols))
