"""The twin: the copy engine (TMA) brings tiles, and a program multiplies many.

The loops over tiles and over k are made one (flatten), so that a and b of the next tile
are on their way while this one is stored.
"""

import triton
import triton.language as tl

from triton_kernels.matmul.tiles import finish, load_bias, tile_at


@triton.jit
def store_part(out_map, accumulator, bias, batch, row, col, ACTIVATION: tl.constexpr):
    """Bias and activation of some columns of a tile, rounded once and stored."""
    part = finish(accumulator, bias, ACTIVATION, out_map.dtype)
    part = part.reshape([1, accumulator.shape[0], accumulator.shape[1]])
    out_map.store([batch, row, col], part)


@triton.jit
def store_tile(
    out_map,
    accumulator,
    bias_ptr,
    batch,
    row,
    col,
    N,
    N_PARTS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """Stores a tile in one or two parts, groups of columns.

    Two parts need half the shared memory, and half the registers. The bias of both is
    loaded at once, one column by each thread, and exchanged through shared memory: for
    each part by itself, the compiler would have every thread load all 32 columns that
    it needs, one after the other.
    """
    tl.static_assert(N_PARTS <= 2)
    PART: tl.constexpr = accumulator.shape[1] // N_PARTS
    bias = load_bias(bias_ptr, col + tl.arange(0, accumulator.shape[1]), N)
    if N_PARTS == 1:
        store_part(out_map, accumulator, bias, batch, row, col, ACTIVATION)
    else:
        left_bias, right_bias = None, None
        if bias is not None:
            left_bias, right_bias = bias.reshape([2, PART]).permute([1, 0]).split()
        halves = accumulator.reshape([accumulator.shape[0], 2, PART])
        left, right = halves.permute([0, 2, 1]).split()
        store_part(out_map, left, left_bias, batch, row, col, ACTIVATION)
        store_part(out_map, right, right_bias, batch, row, col + PART, ACTIVATION)


@triton.jit
def matmul_kernel(
    out_map,  # (n_batches, M, N)
    a_map,  # (n_batches or 1, M, K), or transposed
    b_map,  # (n_batches or 1, K, N), or transposed
    bias_ptr,  # (N), or None
    n_batches,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    N_PARTS: tl.constexpr,
    A_IS_SHARED: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    B_IS_SHARED: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    # -- tile: a program takes every num_programs-th one. The compiler is told that each
    # has a step, as it would provide for tiles without one
    n_tile_rows, n_tile_cols = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    n_tiles = n_batches * n_tile_rows * n_tile_cols
    n_steps = tl.cdiv(K, BLOCK_K)
    tl.assume(n_steps > 0)
    for index in tl.range(tl.program_id(0), n_tiles, tl.num_programs(0), flatten=True):
        batch, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols)
        row, col = tile_row * BLOCK_M, tile_col * BLOCK_N
        a_batch = 0 if A_IS_SHARED else batch
        b_batch = 0 if B_IS_SHARED else batch

        # -- compute: in float32; transposing a tile in shared memory moves nothing
        accumulator = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for step in range(n_steps):
            k = step * BLOCK_K
            if A_ROW_MAJOR:
                a_tile = a_map.load([a_batch, row, k]).reshape([BLOCK_M, BLOCK_K])
            else:
                a_tile = a_map.load([a_batch, k, row]).reshape([BLOCK_K, BLOCK_M]).T
            if B_ROW_MAJOR:
                b_tile = b_map.load([b_batch, k, col]).reshape([BLOCK_K, BLOCK_N])
            else:
                b_tile = b_map.load([b_batch, col, k]).reshape([BLOCK_N, BLOCK_K]).T
            accumulator = tl.dot(a_tile, b_tile, accumulator)

        # -- store: after the epilogue, rounded once
        store_tile(
            out_map, accumulator, bias_ptr, batch, row, col, N, N_PARTS, ACTIVATION
        )
