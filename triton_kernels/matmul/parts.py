"""Tiles that several programs share, so that all multiprocessors work to the end.

Where whole tiles would leave the last wave thin, the tiles of it, perhaps with those of
another wave, are cut along k: programs take equal numbers of their steps. Each leaves
the sums of its part of a tile in memory. Whoever comes last to the tile adds all parts,
in their order, so that the result never depends on who that was. Nobody waits for
another program. A part of 128 x 256 sums is 128 KB. It is written once, and mostly read
once, from the L2.
"""

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl

from triton_kernels.matmul.tiles import halves_of

# What matmul_count_kernel is compiled for.
COUNT: Mapping[str, Any] = {"BLOCK_N": 256, "num_warps": 8, "enable_fp_fusion": True}


@triton.jit(do_not_specialize=["n_counts"])
def matmul_count_kernel(
    n_arrived_ptr,  # (n_counts)
    n_counts,
    BLOCK_N: tl.constexpr,
):
    """Starts the counts of the parts that are there."""
    # -- tile: one program for all counts
    for start in range(0, n_counts, BLOCK_N):
        counts = start + tl.arange(0, BLOCK_N)

        # -- store: no part is there yet
        tl.store(n_arrived_ptr + counts, 0, mask=counts < n_counts)


@triton.jit
def start_of(program, n_streamed_steps):
    """The streamed steps that programs before this one take."""
    n_programs = tl.num_programs(0)
    share, n_longer = n_streamed_steps // n_programs, n_streamed_steps % n_programs
    return share * program + tl.minimum(n_longer, program)


@triton.jit
def program_of(step, n_streamed_steps):
    """The program that takes a streamed step."""
    n_programs = tl.num_programs(0)
    share, n_longer = n_streamed_steps // n_programs, n_streamed_steps % n_programs
    n_before = n_longer * (share + 1)  # of programs that take one step more
    later = n_longer + (step - n_before) // share
    return tl.where(step < n_before, step // (share + 1), later)


@triton.jit
def place_of(parts_ptr, program, first_step, n_streamed_steps, SIZE: tl.constexpr):
    """Where a program's part of a tile lies.

    A program has two places, the second one for a tile that it does not begin with.
    """
    is_second = (start_of(program, n_streamed_steps) < first_step).to(tl.int32)
    return parts_ptr + (2 * program + is_second).to(tl.int64) * SIZE


@triton.jit
def whole_of(left, right):
    """The columns of both halves; the inverse of halves_of."""
    halves = tl.join(left, right).permute([0, 2, 1])
    return halves.reshape([left.shape[0], 2 * left.shape[1]])


@triton.jit
def add_parts(accumulator, parts_ptr, n_arrived_ptr, tile, n_steps, n_streamed_steps):
    """Leaves a program's sums of a part of a tile.

    Returns whether all parts are there, and then the sums of the tile.
    """
    BLOCK_M: tl.constexpr = accumulator.shape[0]
    HALF: tl.constexpr = accumulator.shape[1] // 2
    SIZE: tl.constexpr = BLOCK_M * HALF
    first_step = tile * n_steps
    first_program = program_of(first_step, n_streamed_steps)
    last_program = program_of(first_step + n_steps - 1, n_streamed_steps)
    n_parts = last_program - first_program + 1
    own = tl.program_id(0) - first_program
    offsets = tl.arange(0, BLOCK_M)[:, None] * HALF + tl.arange(0, HALF)[None, :]

    place = place_of(
        *(parts_ptr, tl.program_id(0), first_step, n_streamed_steps, 2 * SIZE)
    )
    left, right = halves_of(accumulator)  # as a whole, they would spill when added
    tl.store(place + offsets, left, cache_modifier=".cg")
    tl.store(place + SIZE + offsets, right, cache_modifier=".cg")
    tl.debug_barrier()  # what all threads have written, before the count
    n_before = tl.atomic_add(n_arrived_ptr + tile, 1, sem="acq_rel", scope="gpu")
    is_last = n_before == n_parts - 1
    if is_last:
        # The sum of the first two parts is the same in either order, so that only a
        # later one has to be read back.
        reads_own = own > 1
        if reads_own:
            # -0.0 adds nothing, not even a sign. Before Triton 3.9, tl.full(-0.0) is 0.
            sign = tl.full([BLOCK_M, HALF], -(2**31), tl.int32)
            left = sign.to(tl.float32, bitcast=True)
            right = left
        for part in range(n_parts):
            if part != own or reads_own:
                place = place_of(
                    *(parts_ptr, first_program + part, first_step),
                    *(n_streamed_steps, 2 * SIZE),
                )
                left += tl.load(place + offsets, cache_modifier=".cg")
                right += tl.load(place + SIZE + offsets, cache_modifier=".cg")
    return is_last, whole_of(left, right)
