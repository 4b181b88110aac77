"""The tiles of matmul's twin, and which of them a call is cut into.

It is those that take the least time by a model, in cycles of a multiprocessor. A
program multiplies its steps as fast as the tensor cores or the L2 allow, or all wait
for the memory. Then come the ends of tiles, and what parts of tiles cost. The numbers
are fitted to times on an H200, which tests/matmul_times.json has: such that the fastest
cut has the fewest cycles, even where that leaves some cycles a little wrong.
csrc/matmul/model.cuh is the same model.
"""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import torch


class Call(NamedTuple):
    """What rung, tile and cut are chosen by."""

    dtype: torch.dtype
    tf32: bool
    n_batches: int
    M: int
    N: int
    K: int
    activation: str
    has_tensor_maps: bool  # out, a and b
    has_vectors: bool  # all is read and written by 8 bytes or more at a time
    a_has_lines: bool  # each row, or column, begins a line of the L2 if the first does
    b_has_lines: bool

    def n_tiles(self, block_m: int, block_n: int) -> int:
        """How many tiles there are of such a size."""
        return self.n_batches * ceil_div(self.M, block_m) * ceil_div(self.N, block_n)


class Cut(NamedTuple):
    """How a call is cut up; programs share the steps of the first n_streamed tiles.

    Those are 0, or as many that no program is left without a step.
    """

    tile: int  # its place in TILES
    n_blocks: int
    n_streamed: int


class MatmulTile(NamedTuple):
    """A tile of the twin, how it is computed, and the cycles that it takes."""

    block_m: int
    block_n: int
    block_k: int  # a step
    num_stages: int  # steps whose a and b are in shared memory at a time
    num_warps: int
    n_stores: int  # groups of columns that are stored one after the other
    programs_per_sm: int  # that a multiprocessor runs at a time
    step_cycles: int  # where the L2 keeps up, and all these programs are at work
    tile_cycles: int  # between two tiles
    ends_cycles: int  # before the first step and after the last one


# Rows, columns and depth, stages, warps, stores and programs; then cycles. The largest
# tile costs the fewest bytes. Two programs with tiles of 128 x 128 share a
# multiprocessor: one stores while the tensor cores work for the other. The last two
# lines are for few steps of many tiles and many steps of few: the longer ring has more
# bytes on their way, and takes longer to begin with.
TILES = (
    MatmulTile(128, 256, 64, 4, 8, 2, 1, 1228, 1504, 7056),
    MatmulTile(128, 128, 64, 3, 4, 2, 2, 1221, 894, 4260),
    MatmulTile(64, 256, 64, 5, 4, 2, 1, 619, 1299, 4216),
    MatmulTile(64, 128, 128, 4, 4, 1, 1, 685, 466, 3832),
    MatmulTile(128, 64, 128, 4, 4, 1, 1, 748, 1572, 3944),
    MatmulTile(64, 64, 128, 3, 4, 1, 2, 539, 2931, 3853),
    MatmulTile(64, 64, 128, 6, 4, 1, 1, 225, 2513, 5142),
)

LINE_SIZE = 64  # elements of 2 bytes in a line of the L2
L2_BYTES, MEMORY_BYTES = 9400, 2400  # in a cycle
# What each row or column of a tile that lies outside of a or b adds to 64 of k.
OUTER_CYCLES = 2
# Of parts of tiles: what a multiprocessor writes or reads of them in a cycle, and how
# long it takes to start the counts, and to learn who comes last.
PART_BYTES, PART_CYCLES = 28, 4600
# How much longer steps take where programs begin within tiles, each at another k.
UNEVEN_PERCENT = 29
MOST_PARTS = 32  # of a tile, where all have as many
MOST_STEPS = 1 << 21  # of a shared tile: four waves of them are counted in 32 bits
ELEMENT_BYTES, SUM_BYTES = 2, 4


def ceil_div(a: int, b: int) -> int:
    """The quotient, rounded up."""
    return -(-a // b)


def cycles(call: Call, tile: MatmulTile, cut: Cut) -> int:
    """The time that a call takes, cut up like this."""
    block_m, block_n, block_k = tile[:3]
    _, n_blocks, n_streamed = cut
    n_steps = ceil_div(call.K, block_k)
    n_whole = ceil_div(call.n_tiles(block_m, block_n) - n_streamed, n_blocks)
    n_shared_steps = ceil_div(n_streamed * n_steps, n_blocks)

    # Where all tiles have as many parts of as many steps, no program begins within one.
    n_parts = n_blocks // n_streamed if n_streamed else 1
    is_even = n_streamed <= 1 or (
        n_parts * n_streamed == n_blocks and n_steps % n_parts == 0
    )

    # A row of a box, a line's bytes, lies in two lines where it does not begin one.
    n_loaded = block_m * (2 - call.a_has_lines) + block_n * (2 - call.b_has_lines)
    step_bytes = n_loaded * min(call.K, block_k) * ELEMENT_BYTES
    step = max(tile.step_cycles, n_blocks * step_bytes // L2_BYTES)
    step = step * (100 if is_even else 100 + UNEVEN_PERCENT) // 100
    n_elements = call.n_batches * (call.M * call.K + call.K * call.N + call.M * call.N)
    bound = n_elements * ELEMENT_BYTES // MEMORY_BYTES
    n_outer = max(block_m - call.M, 0) + max(block_n - call.N, 0)
    n_block_steps = n_whole * n_steps + n_shared_steps
    products = max(n_block_steps * step, bound)
    products += n_block_steps * n_outer * OUTER_CYCLES * block_k // 64
    if n_streamed == 0:
        return products + tile.ends_cycles + (n_whole - 1) * tile.tile_cycles

    parts_of_block = ceil_div(n_streamed, n_blocks) + (not is_even)
    parts_of_tile = ceil_div(n_blocks, n_streamed) + (not is_even)
    part_bytes = block_m * block_n * SUM_BYTES
    return (
        products
        + tile.ends_cycles
        + (n_whole + parts_of_block - 1) * tile.tile_cycles
        + PART_CYCLES
        + parts_of_tile * part_bytes // PART_BYTES
    )


def cuts(
    call: Call, tile: MatmulTile, number: int, n_sms: int, may_share: bool
) -> Iterator[Cut]:
    """The cuts into a tile that are worth it, those without parts first."""
    n_tiles = call.n_tiles(tile.block_m, tile.block_n)
    n_steps, n_programs = ceil_div(call.K, tile.block_k), tile.programs_per_sm * n_sms
    n_left = n_tiles % n_programs
    yield Cut(number, min(n_tiles, n_programs), 0)
    if not may_share or not 1 < n_steps <= MOST_STEPS or n_left == 0:
        return
    if n_tiles > n_programs:
        if n_left * n_steps >= n_programs:
            yield Cut(number, n_programs, n_left)
        yield Cut(number, n_programs, n_left + n_programs)
        return
    for n_parts in range(2, min(MOST_PARTS, n_steps, n_programs // n_tiles) + 1):
        yield Cut(number, n_parts * n_tiles, n_tiles)
    if n_tiles * n_steps >= n_programs:
        yield Cut(number, n_programs, n_tiles)


@functools.lru_cache(maxsize=4096)
def choose(
    call: Call, tiles: tuple[MatmulTile, ...], n_sms: int, may_share: bool
) -> Cut:
    """The cut that takes the least time, of several the first."""
    return min(
        (
            cut
            for number, tile in enumerate(tiles)
            for cut in cuts(call, tile, number, n_sms, may_share)
        ),
        key=lambda cut: cycles(call, tiles[cut.tile], cut),
    )
