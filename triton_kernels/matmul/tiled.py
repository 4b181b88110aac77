"""The second rung: a larger tile, and tl.dot, whose operands are in shared memory.

An element loaded from global memory serves 64 multiplications or 128, one loaded from
shared memory 8, from registers. At the precision "ieee" the threads themselves multiply
and add float32 as IEEE 754 has it, which no tensor core does. They read the right
operand fastest where it does not lie along k: if b alone does, that is on the left, and
the product is transposed.
"""

import triton
import triton.language as tl

from triton_kernels.common.vec import known_multiple
from triton_kernels.matmul.launches import constants
from triton_kernels.matmul.model_tiled import K_PER_SUM, sums_of_part
from triton_kernels.matmul.parts import launch_sum, store_part
from triton_kernels.matmul.tables import TILED_TILES
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
    parts_ptr,  # (2 n_programs, BLOCK_M, BLOCK_N), or None
    n_parts,
    part_k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    K_PER_SUM: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    A_DIVISIBILITY: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
    B_DIVISIBILITY: tl.constexpr,
    OUT_DIVISIBILITY: tl.constexpr,
    ACTIVATION: tl.constexpr,
    B_IS_LEFT: tl.constexpr,
):
    # -- tile: a program owns BLOCK_M x BLOCK_N elements or, of n_parts, a part of their
    # sums: part_k entries of K
    n_tile_rows, n_tile_cols = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    index = tl.program_id(0).to(tl.int64)
    batch, tile_row, tile_col = tile_at(index // n_parts, n_tile_rows, n_tile_cols)
    start, end = 0, K
    if parts_ptr is not None:
        start = index % n_parts * part_k
        end = tl.minimum(start + part_k, K)
    rows = tile_row * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tile_col * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptr += batch * known_multiple(a_stride_batch, A_DIVISIBILITY)
    b_ptr += batch * known_multiple(b_stride_batch, B_DIVISIBILITY)
    a_matrix = a_ptr, M, a_stride_row, a_stride_col
    b_matrix = b_ptr, N, b_stride_col, b_stride_row

    # -- compute: in float32. Sums over K_PER_SUM entries of K are added up: along a
    # single chain of additions the rounding errors of thousands would pile up. In a
    # single loop, the compiler would add in every step, and select the result
    LEFT: tl.constexpr = BLOCK_N if B_IS_LEFT else BLOCK_M
    RIGHT: tl.constexpr = BLOCK_M if B_IS_LEFT else BLOCK_N
    sums = tl.zeros([LEFT, RIGHT], tl.float32)
    for first_k in range(start, end, K_PER_SUM):
        accumulator = tl.zeros([LEFT, RIGHT], tl.float32)
        for k in range(first_k, tl.minimum(first_k + K_PER_SUM, end), BLOCK_K):
            a = load_tile(
                a_matrix, rows, ks[None, :], k, K, A_ROW_MAJOR, A_DIVISIBILITY
            )
            b = load_tile(
                *(b_matrix, cols[None, :], ks[:, None], k, K),
                *(not B_ROW_MAJOR, B_DIVISIBILITY),
            )
            a, b = a.to(tl.float32), b.to(tl.float32)
            left, right = (tl.trans(b), tl.trans(a)) if B_IS_LEFT else (a, b)
            accumulator = tl.dot(left, right, accumulator, input_precision="ieee")
        sums += accumulator
    if B_IS_LEFT:
        sums = tl.trans(sums)

    # -- store: of a part its sums, which matmul_sum_kernel adds; else after the
    # epilogue, rounded once
    if parts_ptr is not None:
        store_part(parts_ptr, sums, index, 0, M - tile_row * BLOCK_M)
    else:
        dtype: tl.constexpr = out_ptr.dtype.element_ty
        out = finish(sums, load_bias(bias_ptr, cols, N), ACTIVATION, dtype)
        n_cols = known_multiple(N, OUT_DIVISIBILITY)
        out_ptr += (batch * M + rows) * n_cols + cols[None, :]
        tl.store(out_ptr, out, mask=(rows < M) & (cols[None, :] < n_cols))


def launch_tiled(arguments, call, cut, parts, layout):
    """Launches the kernel, and what adds up parts of tiles."""
    out, _, _, bias, *_ = arguments
    tile = TILED_TILES[cut.tile]
    is_shared = cut.n_streamed > 0
    n_parts = cut.n_blocks // cut.n_streamed if is_shared else 1
    n_sums = sums_of_part(call, n_parts)
    matmul_tiled_kernel[(cut.n_blocks,)](
        *arguments,
        parts if is_shared else None,
        *(n_parts, n_sums * K_PER_SUM),
        **constants(tile, call, tile.block_k),
        **layout,
        K_PER_SUM=K_PER_SUM,
        B_IS_LEFT=tile.b_is_left,
    )
    if is_shared:
        n_steps, out_divisibility = n_parts * n_sums, layout["OUT_DIVISIBILITY"]
        launch_sum(out, parts, bias, call, tile, n_steps, cut, out_divisibility)
