"""Tiles that several programs share, so that all multiprocessors work to the end.

Where whole tiles would leave the last wave thin, the tiles of it, perhaps with those of
another wave, are cut along k: programs take equal numbers of their steps. Each leaves
the sums of its part of a tile in memory. A second launch adds the parts of each tile,
in their order, so that the result is the same in every run. Nobody waits for another
program. A part of 128 x 256 sums is 128 KB. It is written once and read once, mostly
from the L2.
"""

import triton
import triton.language as tl

from triton_kernels.common.device import current_device
from triton_kernels.common.griddepcontrol import griddepcontrol_wait
from triton_kernels.common.vec import known_multiple
from triton_kernels.matmul.tiles import finish, load_bias, tile_at

SIZE = 128  # elements of a program of matmul_sum_kernel: a warp loads them at once
MOST_GROUPS = 32  # parts that it has on their way at a time, 8 of them for each warp


@triton.jit
def start_of(program, n_programs, n_streamed_steps):
    """The streamed steps that programs before this one take."""
    share, n_longer = n_streamed_steps // n_programs, n_streamed_steps % n_programs
    return share * program + tl.minimum(n_longer, program)


@triton.jit
def part_from(tile, step, n_streamed, n_steps):
    """What a program multiplies in one go: a tile, its first step, and their number.

    It is the part from this step on, or else the program's first whole tile.
    """
    end = start_of(tl.program_id(0) + 1, tl.num_programs(0), n_streamed * n_steps)
    n_left = end - tile * n_steps - step
    is_shared = n_left > 0
    own_tile = tl.where(is_shared, tile, n_streamed + tl.program_id(0))
    own_step = tl.where(is_shared, step, 0)
    n_own_steps = tl.where(is_shared, tl.minimum(n_steps - step, n_left), n_steps)
    return own_tile, own_step, n_own_steps


@triton.jit
def first_part(n_streamed, n_steps):
    """Likewise, the first one of a program."""
    start = start_of(tl.program_id(0), tl.num_programs(0), n_streamed * n_steps)
    return part_from(start // n_steps, start % n_steps, n_streamed, n_steps)


@triton.jit
def next_part(tile, n_streamed, n_steps):
    """Likewise, the one behind that of this tile."""
    is_shared = tile < n_streamed
    next_tile, step, n_own_steps = part_from(tile + 1, 0, n_streamed, n_steps)
    next_tile = tl.where(is_shared, next_tile, tile + tl.num_programs(0))
    step = tl.where(is_shared, step, 0)
    return next_tile, step, tl.where(is_shared, n_own_steps, n_steps)


@triton.jit
def program_of(step, n_programs, n_streamed_steps):
    """The program that takes a streamed step."""
    share, n_longer = n_streamed_steps // n_programs, n_streamed_steps % n_programs
    n_before = n_longer * (share + 1)  # of programs that take one step more
    later = n_longer + (step - n_before) // share
    return tl.where(step < n_before, step // (share + 1), later)


@triton.jit
def place_of(parts_ptr, program, is_second, SIZE: tl.constexpr):
    """Where a program's part of a tile lies.

    A program has two places, the second one for a tile that it does not begin with.
    """
    return parts_ptr + (2 * program + is_second).to(tl.int64) * SIZE


@triton.jit
def store_part(parts_ptr, accumulator, program, is_second, n_rows):
    """Leaves a program's sums of a part of a tile, of the rows that exist."""
    BLOCK_M: tl.constexpr = accumulator.shape[0]
    BLOCK_N: tl.constexpr = accumulator.shape[1]
    rows = tl.arange(0, BLOCK_M)[None, :, None]
    cols = tl.arange(0, BLOCK_N)[None, None, :]
    place = place_of(parts_ptr, program, is_second, BLOCK_M * BLOCK_N)
    tl.store(place + rows * BLOCK_N + cols, accumulator[None, :, :], mask=rows < n_rows)


@triton.jit(do_not_specialize=["n_steps", "n_streamed", "n_blocks"])
def matmul_sum_kernel(
    out_ptr,  # (n_batches, M, N)
    parts_ptr,  # (2 n_blocks, BLOCK_M, BLOCK_N)
    bias_ptr,  # (N), or None
    M,
    N,
    n_steps,
    n_streamed,
    n_blocks,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    OUT_DIVISIBILITY: tl.constexpr,
    GROUPS: tl.constexpr,
    SIZE: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    # -- tile: a program owns SIZE neighbouring elements of one that is shared
    N_CHUNKS: tl.constexpr = BLOCK_M * BLOCK_N // SIZE
    tile, chunk = tl.program_id(0) // N_CHUNKS, tl.program_id(0) % N_CHUNKS
    n_tile_rows, n_tile_cols = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    batch, tile_row, tile_col = tile_at(tile.to(tl.int64), n_tile_rows, n_tile_cols)
    offsets = chunk * SIZE + tl.arange(0, SIZE)
    rows = tile_row * BLOCK_M + offsets // BLOCK_N
    cols = tile_col * BLOCK_N + offsets % BLOCK_N

    # -- compute: the sum of all parts; a tile that has one was stored as a whole
    n_streamed_steps = n_streamed * n_steps
    first_step = tile * n_steps
    first_block = program_of(first_step, n_blocks, n_streamed_steps)
    last_step = first_step + n_steps - 1
    n_parts = program_of(last_step, n_blocks, n_streamed_steps) - first_block + 1
    n_rows = tl.where(n_parts > 1, M, 0)
    # -0.0 adds nothing, not even a sign. Before Triton 3.9, tl.full(-0.0) is 0.
    nothing = tl.full([GROUPS, SIZE], -(2**31), tl.int32).to(tl.float32, bitcast=True)
    sums = nothing
    griddepcontrol_wait()
    for start in range(0, n_parts, GROUPS):
        parts = start + tl.arange(0, GROUPS)[:, None]
        blocks = first_block + parts
        is_second = start_of(blocks, n_blocks, n_streamed_steps) < first_step
        places = place_of(parts_ptr, blocks, is_second.to(tl.int32), BLOCK_M * BLOCK_N)
        is_part = (parts < n_parts) & (rows < n_rows)[None, :]
        sums += tl.load(places + offsets[None, :], mask=is_part, other=nothing)
    accumulator = tl.sum(sums, axis=0)[None, :]

    # -- store: after the epilogue, rounded once
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    out = finish(accumulator, load_bias(bias_ptr, cols, N), ACTIVATION, dtype)
    n_cols = known_multiple(N, OUT_DIVISIBILITY)
    is_inside = (rows < n_rows) & (cols < n_cols)
    out_ptr += (batch * M + rows) * n_cols + cols
    tl.store(out_ptr[None, :], out, mask=is_inside[None, :])


def launch_sum(out, parts, bias, call, tile, n_steps, cut, out_divisibility):
    """Launches what adds up the parts of tiles, while the launch before it ends."""
    n_chunks = tile.block_m * tile.block_n // SIZE
    n_parts = triton.cdiv(cut.n_blocks, cut.n_streamed)
    groups = min(max(triton.next_power_of_2(n_parts), 2), MOST_GROUPS)
    matmul_sum_kernel[(cut.n_streamed * n_chunks,)](
        *(out, parts, bias, call.M, call.N),
        *(n_steps, cut.n_streamed, cut.n_blocks),
        BLOCK_M=tile.block_m,
        BLOCK_N=tile.block_n,
        OUT_DIVISIBILITY=out_divisibility,
        GROUPS=groups,
        SIZE=SIZE,
        ACTIVATION=call.activation,
        num_warps=max(groups // 8, 1),
        enable_fp_fusion=True,
        launch_pdl=current_device().has_dependent_launches,
    )
