"""The twin: the copy engine (TMA) brings tiles, and a program multiplies many.

The tensor cores cut off the bits that a sum has no room for, and of 8-bit floats keep
13 of fraction. So they sum up one step, and steps are added in float32. As the sums of
a step take registers besides those of the tile, its rows are multiplied in two halves,
one after the other.

tl.dot(a, b, sums, max_num_imprecise_acc=BLOCK_K) would do so, too, but adds before it
waits for the products, so that the assembler has to put in waits.
"""

import triton
import triton.language as tl

from triton_kernels.matmul.tiles import halves_of, tile_at
from triton_kernels.scaled_matmul.float8 import dot_of_float8
from triton_kernels.scaled_matmul.scales import load_scales, scaled


@triton.jit
def store_columns(
    out,
    accumulator,
    scale_a,
    scale_b,
    row,
    col,
    M,
    N,
    N_STORES: tl.constexpr,
    OUT_HAS_MAP: tl.constexpr,
):
    """Scales some columns, rounds them once and stores them.

    At once, or one half after the other, each perhaps in halves again.
    """
    BLOCK_M: tl.constexpr = accumulator.shape[0]
    BLOCK_N: tl.constexpr = accumulator.shape[1]
    if N_STORES > 1:
        left_b, right_b = scale_b.reshape([2, BLOCK_N // 2]).trans().split()
        left, right = halves_of(accumulator)
        store_columns(
            *(out, left, scale_a, left_b, row, col, M, N, N_STORES // 2, OUT_HAS_MAP)
        )
        store_columns(
            *(out, right, scale_a, right_b, row, col + BLOCK_N // 2),
            *(M, N, N_STORES // 2, OUT_HAS_MAP),
        )
    elif OUT_HAS_MAP:
        part = scaled(accumulator, scale_a, scale_b, out.dtype)
        out.store([0, row, col], part.reshape([1, BLOCK_M, BLOCK_N]))
    else:  # element by element: neighbours by neighbouring threads
        part = scaled(accumulator, scale_a, scale_b, out.dtype.element_ty)
        rows = row + tl.arange(0, BLOCK_M)[:, None]
        cols = col + tl.arange(0, BLOCK_N)[None, :]
        out += rows.to(tl.int64) * N + cols
        tl.store(out, part, mask=(rows < M) & (cols < N))


@triton.jit
def scaled_matmul_kernel(
    out,  # (M, N): its map or, where its rows are not aligned, its address
    a_map,  # (M, K)
    b_map,  # (N, K)
    scale_a_ptr,  # (M) or, with a stride of 0, (1)
    scale_b_ptr,  # (N) or, likewise, (1)
    M,
    N,
    K,
    scale_a_stride,
    scale_b_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    N_STORES: tl.constexpr,
    OUT_HAS_MAP: tl.constexpr,
):
    HALF_M: tl.constexpr = BLOCK_M // 2
    n_tile_rows, n_tile_cols = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    n_tiles = n_tile_rows * n_tile_cols
    n_steps = tl.cdiv(K, BLOCK_K)
    tl.assume(n_steps > 0)  # the compiler would provide for tiles without a step

    # -- tile: a program takes every num_programs-th one. The loops over tiles and over
    # k are made one (flatten), so that a and b of the next tile are on their way while
    # this one is stored.
    for index in tl.range(tl.program_id(0), n_tiles, tl.num_programs(0), flatten=True):
        _batch, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols)
        row, col = tile_row * BLOCK_M, tile_col * BLOCK_N

        upper_sums = tl.zeros([HALF_M, BLOCK_N], tl.float32)
        lower_sums = tl.zeros([HALF_M, BLOCK_N], tl.float32)
        for step in range(n_steps):
            # -- load: the compiler has it begin some steps ahead
            k = step * BLOCK_K
            b = b_map.load([0, col, k]).reshape([BLOCK_N, BLOCK_K])
            upper_a = a_map.load([0, row, k]).reshape([HALF_M, BLOCK_K])
            lower_a = a_map.load([0, row + HALF_M, k]).reshape([HALF_M, BLOCK_K])

            # -- compute: the sums of this step alone, which are added in float32
            upper_sums += dot_of_float8(upper_a, b.T)
            lower_sums += dot_of_float8(lower_a, b.T)

        # -- store: after the scales, rounded once
        cols = col + tl.arange(0, BLOCK_N)
        scale_b = load_scales(scale_b_ptr, cols, N, scale_b_stride)
        rows = row + tl.arange(0, HALF_M)
        scale_a = load_scales(scale_a_ptr, rows, M, scale_a_stride)
        store_columns(
            *(out, upper_sums, scale_a, scale_b, row, col, M, N),
            *(N_STORES, OUT_HAS_MAP),
        )
        scale_a = load_scales(scale_a_ptr, rows + HALF_M, M, scale_a_stride)
        store_columns(
            *(out, lower_sums, scale_a, scale_b, row + HALF_M, col, M, N),
            *(N_STORES, OUT_HAS_MAP),
        )
