"""The twin: the copy engine (TMA) brings tiles, and a program multiplies many.

First come a program's parts of those that are shared, if any are. For whole tiles, the
loops over tiles and over k are made one (flatten), so that a and b of the next tile are
on their way while this one is stored.
"""

import triton
import triton.language as tl

from triton_kernels.common.griddepcontrol import (
    griddepcontrol_launch_dependents,
    griddepcontrol_wait,
)
from triton_kernels.matmul.parts import start_of, store_part
from triton_kernels.matmul.tiles import finish, halves_of, load_bias, tile_at


@triton.jit
def store_columns(
    out,
    accumulator,
    bias,
    batch,
    row,
    col,
    M,
    N,
    N_STORES: tl.constexpr,
    OUT_HAS_MAP: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """Bias and activation of some columns of a tile, rounded once and stored.

    At once, or one half after the other, each perhaps in halves again. The bias comes
    before the sums, which have to be waited for.
    """
    BLOCK_M: tl.constexpr = accumulator.shape[0]
    BLOCK_N: tl.constexpr = accumulator.shape[1]
    if N_STORES > 1:
        left_bias, right_bias = None, None
        if bias is not None:
            left_bias, right_bias = bias.reshape([2, BLOCK_N // 2]).trans().split()
        left, right = halves_of(accumulator)
        store_columns(
            *(out, left, left_bias, batch, row, col, M, N),
            *(N_STORES // 2, OUT_HAS_MAP, ACTIVATION),
        )
        store_columns(
            *(out, right, right_bias, batch, row, col + BLOCK_N // 2, M, N),
            *(N_STORES // 2, OUT_HAS_MAP, ACTIVATION),
        )
    elif OUT_HAS_MAP:
        part = finish(accumulator, bias, ACTIVATION, out.dtype)
        out.store([batch, row, col], part.reshape([1, BLOCK_M, BLOCK_N]))
    else:  # element by element: neighbours by neighbouring threads
        part = finish(accumulator, bias, ACTIVATION, out.dtype.element_ty)
        rows = row + tl.arange(0, BLOCK_M)[:, None]
        cols = col + tl.arange(0, BLOCK_N)[None, :]
        out += (batch.to(tl.int64) * M + rows) * N + cols
        tl.store(out, part, mask=(rows < M) & (cols < N))


@triton.jit
def store_tile(
    out,
    accumulator,
    bias_ptr,
    batch,
    row,
    col,
    M,
    N,
    N_STORES: tl.constexpr,
    OUT_HAS_MAP: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """Stores a tile, N_STORES equal groups of its columns one after the other.

    Halves need half the shared memory, and half the registers. The bias of all is
    loaded at once, one column by each thread, and exchanged through shared memory: for
    each group by itself, the compiler would have every thread load all columns that it
    needs, one after the other.
    """
    bias = load_bias(bias_ptr, col + tl.arange(0, accumulator.shape[1]), N)
    store_columns(
        *(out, accumulator),
        bias,
        *(batch, row, col, M, N, N_STORES, OUT_HAS_MAP, ACTIVATION),
    )


@triton.jit
def load_rows(
    x_map,
    place,
    row,
    k,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ALONG_K: tl.constexpr,
):
    """A tile with rows along k. Transposing it in shared memory moves nothing."""
    if ALONG_K:
        tile = x_map.load([place, row, k]).reshape([BLOCK, BLOCK_K])
    else:
        tile = x_map.load([place, k, row]).reshape([BLOCK_K, BLOCK]).T
    return tile


@triton.jit
def multiply(
    a_map,
    b_map,
    a_place,
    b_place,
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
    """The sums of some steps of a tile, in float32."""
    accumulator = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for step in range(n_steps):
        k = (first_step + step) * BLOCK_K
        a = load_rows(a_map, a_place, row, k, BLOCK_M, BLOCK_K, A_ROW_MAJOR)
        b = load_rows(b_map, b_place, col, k, BLOCK_N, BLOCK_K, not B_ROW_MAJOR)
        accumulator = tl.dot(a, b.T, accumulator)
    return accumulator


@triton.jit(do_not_specialize=["n_streamed"])
def matmul_kernel(
    out,  # (n_batches, M, N): its map or, where its rows are not aligned, its address
    a_map,  # (n_batches or 1, M, K), or transposed
    b_map,  # (n_batches or 1, K, N), or transposed
    bias_ptr,  # (N), or None
    parts_ptr,  # (2 n_programs, BLOCK_M, BLOCK_N); None where no tile is shared
    n_batches,
    M,
    N,
    K,
    n_streamed,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    N_STORES: tl.constexpr,
    OUT_HAS_MAP: tl.constexpr,
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
    griddepcontrol_wait()

    if parts_ptr is not None:
        # -- tile: the steps of the first n_streamed ones, counted tile by tile, are
        # shared out among all programs
        n_streamed_steps = n_streamed * n_steps
        program, n_programs = tl.program_id(0), tl.num_programs(0)
        begin = start_of(program, n_programs, n_streamed_steps)
        end = start_of(program + 1, n_programs, n_streamed_steps)
        start = begin
        while start < end:
            tile, first_step = start // n_steps, start % n_steps
            n_own_steps = tl.minimum(n_steps - first_step, end - start)
            batch, tile_row, tile_col = tile_at(tile, n_tile_rows, n_tile_cols)
            row, col = tile_row * BLOCK_M, tile_col * BLOCK_N
            a_place = 0 if A_IS_SHARED else batch
            b_place = 0 if B_IS_SHARED else batch

            # -- compute: some steps
            accumulator = multiply(
                *(a_map, b_map, a_place, b_place, row, col, first_step, n_own_steps),
                *(BLOCK_M, BLOCK_N, BLOCK_K, A_ROW_MAJOR, B_ROW_MAJOR),
            )

            # -- store: what another launch adds up, or a whole tile, after the epilogue
            if n_own_steps < n_steps:
                is_second = (begin < tile * n_steps).to(tl.int32)
                store_part(parts_ptr, accumulator, program, is_second, M - row)
            else:
                store_tile(
                    *(out, accumulator, bias_ptr, batch, row, col, M, N),
                    *(N_STORES, OUT_HAS_MAP, ACTIVATION),
                )
            start += n_own_steps
        griddepcontrol_launch_dependents()

    # -- tile: of the others, a program takes every num_programs-th one
    first = n_streamed + tl.program_id(0)
    for index in tl.range(first, n_tiles, tl.num_programs(0), flatten=True):
        batch, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols)
        row, col = tile_row * BLOCK_M, tile_col * BLOCK_N
        a_place = 0 if A_IS_SHARED else batch
        b_place = 0 if B_IS_SHARED else batch

        # -- compute: all steps
        accumulator = multiply(
            *(a_map, b_map, a_place, b_place, row, col, 0, n_steps),
            *(BLOCK_M, BLOCK_N, BLOCK_K, A_ROW_MAJOR, B_ROW_MAJOR),
        )

        # -- store: after the epilogue, rounded once
        griddepcontrol_launch_dependents()
        store_tile(
            *(out, accumulator, bias_ptr, batch, row, col, M, N),
            *(N_STORES, OUT_HAS_MAP, ACTIVATION),
        )
