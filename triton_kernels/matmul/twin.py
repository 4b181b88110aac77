"""The twin: the copy engine (TMA) brings tiles, and a program multiplies many.

First come a program's parts of those that are shared, if any are. For whole tiles, the
loops over tiles and over k are made one (flatten), so that a and b of the next tile are
on their way while this one is stored.
"""

import triton
import triton.language as tl

from triton_kernels.matmul.parts import add_parts, start_of
from triton_kernels.matmul.tiles import finish, halves_of, load_bias, tile_at


@triton.jit
def store_columns(
    out_map, accumulator, bias, batch, row, col, ACTIVATION: tl.constexpr
):
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
    N_STORES: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """Stores a tile at once, or one half of its columns after the other.

    Halves need half the shared memory, and half the registers. The bias of both is
    loaded at once, one column by each thread, and exchanged through shared memory: for
    each half by itself, the compiler would have every thread load all 32 columns that
    it needs, one after the other.
    """
    tl.static_assert(N_STORES <= 2)
    WIDTH: tl.constexpr = accumulator.shape[1] // N_STORES
    bias = load_bias(bias_ptr, col + tl.arange(0, accumulator.shape[1]), N)
    if N_STORES == 1:
        store_columns(out_map, accumulator, bias, batch, row, col, ACTIVATION)
    else:
        left_bias, right_bias = None, None
        if bias is not None:
            left_bias, right_bias = bias.reshape([2, WIDTH]).permute([1, 0]).split()
        left, right = halves_of(accumulator)
        store_columns(out_map, left, left_bias, batch, row, col, ACTIVATION)
        store_columns(out_map, right, right_bias, batch, row, col + WIDTH, ACTIVATION)


@triton.jit
def multiply(
    a_map,
    b_map,
    a_batch,
    b_batch,
    row,
    col,
    first_step,
    n_steps,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
):
    """The sums of some steps of a tile, in float32.

    Transposing a tile in shared memory moves nothing.
    """
    accumulator = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for step in range(n_steps):
        k = (first_step + step) * BLOCK_K
        if A_ROW_MAJOR:
            a_tile = a_map.load([a_batch, row, k]).reshape([BLOCK_M, BLOCK_K])
        else:
            a_tile = a_map.load([a_batch, k, row]).reshape([BLOCK_K, BLOCK_M]).T
        if B_ROW_MAJOR:
            b_tile = b_map.load([b_batch, k, col]).reshape([BLOCK_K, BLOCK_N])
        else:
            b_tile = b_map.load([b_batch, col, k]).reshape([BLOCK_N, BLOCK_K]).T
        accumulator = tl.dot(a_tile, b_tile, accumulator)
    return accumulator


@triton.jit(do_not_specialize=["n_streamed"])
def matmul_kernel(
    out_map,  # (n_batches, M, N)
    a_map,  # (n_batches or 1, M, K), or transposed
    b_map,  # (n_batches or 1, K, N), or transposed
    bias_ptr,  # (N), or None
    parts_ptr,  # (2 n_programs, 2, BLOCK_M, BLOCK_N / 2); None where no tile is shared
    n_arrived_ptr,  # (n_streamed), 0 at first; or None
    n_batches,
    M,
    N,
    K,
    n_streamed,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    N_STORES: tl.constexpr,
    A_IS_SHARED: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    B_IS_SHARED: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    n_tile_rows, n_tile_cols = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    n_tiles = n_batches * n_tile_rows * n_tile_cols
    n_steps = tl.cdiv(K, BLOCK_K)
    tl.assume(n_steps > 0)  # the compiler would provide for tiles without a step

    if parts_ptr is not None:
        # -- tile: the steps of the first n_streamed ones, counted tile by tile, are
        # shared out among all programs
        n_streamed_steps = n_streamed * n_steps
        start = start_of(tl.program_id(0), n_streamed_steps)
        end = start_of(tl.program_id(0) + 1, n_streamed_steps)
        while start < end:
            tile, first_step = start // n_steps, start % n_steps
            n_own_steps = tl.minimum(n_steps - first_step, end - start)
            batch, tile_row, tile_col = tile_at(tile, n_tile_rows, n_tile_cols)
            row, col = tile_row * BLOCK_M, tile_col * BLOCK_N
            a_batch = 0 if A_IS_SHARED else batch
            b_batch = 0 if B_IS_SHARED else batch

            # -- compute: some steps
            accumulator = multiply(
                *(a_map, b_map, a_batch, b_batch, row, col, first_step, n_own_steps),
                *(BLOCK_M, BLOCK_N, BLOCK_K, A_ROW_MAJOR, B_ROW_MAJOR),
            )

            # -- parts: only whoever comes last to a tile has its sums
            has_sums = n_own_steps == n_steps
            if not has_sums:
                has_sums, accumulator = add_parts(
                    *(accumulator, parts_ptr, n_arrived_ptr),
                    *(tile, n_steps, n_streamed_steps),
                )

            # -- store: after the epilogue, rounded once
            if has_sums:
                store_tile(
                    *(out_map, accumulator, bias_ptr, batch, row, col, N),
                    *(N_STORES, ACTIVATION),
                )
            start += n_own_steps

    # -- tile: of the others, a program takes every num_programs-th one
    first = n_streamed + tl.program_id(0)
    for index in tl.range(first, n_tiles, tl.num_programs(0), flatten=True):
        batch, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols)
        row, col = tile_row * BLOCK_M, tile_col * BLOCK_N
        a_batch = 0 if A_IS_SHARED else batch
        b_batch = 0 if B_IS_SHARED else batch

        # -- compute: all steps
        accumulator = multiply(
            *(a_map, b_map, a_batch, b_batch, row, col, 0, n_steps),
            *(BLOCK_M, BLOCK_N, BLOCK_K, A_ROW_MAJOR, B_ROW_MAJOR),
        )

        # -- store: after the epilogue, rounded once
        store_tile(
            out_map, accumulator, bias_ptr, batch, row, col, N, N_STORES, ACTIVATION
        )
