"""Which rung computes a product of matrices, and which tiles it is cut into.

It is those that take the least time by a model, in cycles of a multiprocessor. A
program multiplies its steps as fast as the tensor cores or the L2 allow, or all wait
for the memory. Then come the ends of tiles, and what parts of tiles cost. The numbers
are fitted to times on an H200, those of tests/matmul_times.json and of many cuts of the
drawn products: such that the fastest cut has the fewest cycles, even where that leaves
some a little wrong. csrc/matmul/model.cuh is the same model; there, either rung may
read copies, and the blocks of a cluster share what they load: they count as one with as
many tiles side by side.
"""

import functools
from collections.abc import Iterator
from typing import Any

import torch

from triton_kernels.matmul.call import Call, Cut, MatmulRung, ceil_div
from triton_kernels.matmul.tables import MatmulTile, TensorCoresTile

LINE_BYTES = 128  # of the L2
# What a row of a box takes that lies in two lines, in tenths of a cycle.
UNLINED_ROW_TENTHS = 30
# Of all multiprocessors, those that lie together in fours; an H200 has 120 of 132.
IN_FOURS_PERCENT = 91
L2_BYTES, MEMORY_BYTES = 9400, 2400  # in a cycle
# How much longer steps take where programs begin within tiles, each at another k.
UNEVEN_PERCENT = 29
# How much longer steps take where elements of a and b come one by one.
SINGLE_PERCENT = 20
# Likewise of float32, whose tiles pass through registers on their way to tensor cores.
FLOAT32_PERCENT, SINGLE_FLOAT32_PERCENT = 130, 980
# What out costs where its rows are not aligned, for 1024 elements of a tile.
SINGLE_STORE_CYCLES = 340
# A launch that adds parts of tiles, one that copies operands to aligned rows, and how
# many bytes of parts are written or read in a cycle.
SUM_CYCLES, ALIGN_CYCLES, PART_BYTES = 3500, 8200, 2000
# A product that takes longer gains nothing where it begins while the launch before it
# ends, and its programs are spread less evenly.
LONG_CYCLES = 50000
MOST_PARTS = 64  # of a tile, where all have as many
MOST_STEPS = 1 << 18  # of a shared tile: thousands of them are counted in 32 bits
MOST_SUMS = 2 * 128 * 256  # that there is memory for, for each multiprocessor
ELEMENT_BYTES, SUM_BYTES = 2, 4  # the elements that depths are counted in


def memory_cycles(call: Call, unlined_percent: int) -> int:
    """The fewest cycles of the memory: more where lines between rows are read twice."""
    n_elements = call.M * call.K + call.K * call.N + call.M * call.N
    if not call.a_has_lines:
        n_elements += call.M * call.K * unlined_percent // 100
    if not call.b_has_lines:
        n_elements += call.K * call.N * unlined_percent // 100
    return call.n_batches * n_elements * call.dtype.itemsize // MEMORY_BYTES


def sum_cycles(cut: Cut, tile_size: int) -> int:
    """The time that parts of tiles take, which are written once and read once."""
    n_bytes = 2 * cut.n_blocks * tile_size * SUM_BYTES
    return SUM_CYCLES + n_bytes // PART_BYTES if cut.n_streamed else 0


def align_cycles(call: Call) -> int:
    """The time that copies of operands take."""
    n_bytes = 2 * call.n_copied * call.dtype.itemsize
    return ALIGN_CYCLES + n_bytes // MEMORY_BYTES if call.n_copied else 0


def twin_cycles(call: Call, tile: MatmulTile, cut: Cut) -> int:
    """The time that a call takes on the twin, cut up like this."""
    block_m, block_n = cluster_tile(tile)
    _, n_blocks, n_streamed = cut
    depth, element_bytes = twin_depth(call, tile), call.dtype.itemsize
    n_steps = ceil_div(call.K, depth)
    n_whole = ceil_div(call.n_tiles(block_m, block_n) - n_streamed, n_blocks)
    n_shared_steps = ceil_div(n_streamed * n_steps, n_blocks)

    # Where all tiles have as many parts of as many steps, no program begins within one.
    n_parts = n_blocks // n_streamed if n_streamed else 1
    is_even = n_streamed <= 1 or (
        n_parts * n_streamed == n_blocks and n_steps % n_parts == 0
    )

    # A row of a box, a line's bytes, lies in two lines where it does not begin one.
    copies_all = tile.outer_cycles > 0
    n_rows = block_m if copies_all else min(block_m, call.M)
    n_cols = block_n if copies_all else min(block_n, call.N)
    n_loaded = n_rows * (2 - call.a_has_lines) + n_cols * (2 - call.b_has_lines)
    step_bytes = n_loaded * min(call.K, depth) * element_bytes
    n_unlined = 0  # rows that a multiprocessor loads itself
    if not call.a_has_lines:
        n_unlined += min(tile.block_m, n_rows) // tile.cluster_cols
    if not call.b_has_lines:
        n_unlined += min(tile.block_n, n_cols) // tile.cluster_rows
    row_cycles = n_unlined * UNLINED_ROW_TENTHS // 10
    step = max(tile.step_cycles, row_cycles, n_blocks * step_bytes // L2_BYTES)
    step = step * (100 if is_even else 100 + UNEVEN_PERCENT) // 100
    n_outer = max(n_rows - call.M, 0) + max(n_cols - call.N, 0)
    n_block_steps = n_whole * n_steps + n_shared_steps
    n_tiles = n_whole
    if n_streamed:
        n_tiles += ceil_div(n_streamed, n_blocks) + (not is_even)
    tile_cycles = tile.tile_cycles
    if not call.out_is_aligned:
        tile_cycles += block_m * block_n * SINGLE_STORE_CYCLES // 1024
    return (
        max(n_block_steps * step, memory_cycles(call, tile.unlined_percent))
        + n_block_steps * n_outer * tile.outer_cycles * tile.block_k // 64
        + tile.ends_cycles
        - tile.tile_cycles
        + n_tiles * tile_cycles
        + sum_cycles(cut, block_m * block_n)
        + align_cycles(call)
    )


def cluster_tile(tile: MatmulTile) -> tuple[int, int]:
    """The rows and columns of a cluster's tile."""
    return tile.cluster_rows * tile.block_m, tile.cluster_cols * tile.block_n


def may_serve(call: Call, tile: MatmulTile) -> bool:
    """Whether a cluster helps: boxes take long, and most of its blocks have a tile."""
    if tile.cluster_rows * tile.cluster_cols == 1:
        return True
    return (
        not (call.a_has_lines and call.b_has_lines)
        and ceil_div(call.M, tile.block_m) > tile.cluster_rows // 2
        and ceil_div(call.N, tile.block_n) > tile.cluster_cols // 2
    )


def step_percent(call: Call) -> int:
    """How long a step of tensor_cores takes, in percent of one of aligned 2 bytes."""
    if call.dtype == torch.float32:
        return 100 + (FLOAT32_PERCENT if call.has_vectors else SINGLE_FLOAT32_PERCENT)
    return 100 if call.has_words else 100 + SINGLE_PERCENT


def tensor_cores_cycles(call: Call, tile: TensorCoresTile, cut: Cut, n_sms: int) -> int:
    """The time that a call takes on tensor_cores, cut up like this."""
    n_parts = cut.n_blocks // cut.n_streamed if cut.n_streamed else 1
    n_steps = ceil_div(ceil_div(call.K, step_depth(call, tile)), n_parts)
    programs_per_sm = ceil_div(cut.n_blocks, n_sms)
    percent = step_percent(call)
    tile_cycles, tile_size = tile.tile_cycles, tile.block_m * tile.block_n
    if not call.out_is_aligned and n_parts == 1:
        tile_cycles += tile_size * SINGLE_STORE_CYCLES // 1024
    n_busy = programs_per_sm * n_steps * tile.busy_cycles * percent // 100
    n_busy += max(programs_per_sm - 2, 0) * tile_cycles
    n_alone = n_steps * tile.step_cycles * percent // 100
    memory = memory_cycles(call, tile.unlined_percent * call.has_vectors)
    return max(n_alone, n_busy, memory) + tile.ends_cycles + sum_cycles(cut, tile_size)


def twin_cuts(
    call: Call, tile: MatmulTile, number: int, n_sms: int, may_share: bool
) -> Iterator[Cut]:
    """The cuts into a tile of the twin that are worth it, without parts first."""
    if not may_serve(call, tile):
        return
    n_tiles = call.n_tiles(*cluster_tile(tile))
    n_steps = ceil_div(call.K, twin_depth(call, tile))
    cluster_size = tile.cluster_rows * tile.cluster_cols
    n_programs = tile.programs_per_sm * n_sms // cluster_size
    if cluster_size == 4:
        n_programs = n_programs * IN_FOURS_PERCENT // 100
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


def tensor_cores_cuts(
    call: Call, tile: TensorCoresTile, number: int, n_sms: int, may_share: bool
) -> Iterator[Cut]:
    """Likewise of tensor_cores."""
    if tile.element_bytes in (0, call.dtype.itemsize):
        n_steps = ceil_div(call.K, step_depth(call, tile))
        yield from even_cuts(call, tile, number, n_steps, n_sms, may_share)


def even_cuts(
    call: Call, tile: Any, number: int, n_steps: int, n_sms: int, may_share: bool
) -> Iterator[Cut]:
    """The cuts into tiles that all have as many parts, of which none is empty."""
    n_tiles = call.n_tiles(tile.block_m, tile.block_n)
    yield Cut(number, n_tiles, 0)
    if not may_share or n_steps > MOST_STEPS:
        return
    for n_parts in range(2, min(n_steps, MOST_PARTS) + 1):
        # No part is without a step, and there is memory for all.
        if (n_parts - 1) * ceil_div(n_steps, n_parts) >= n_steps:
            continue
        if 2 * n_parts * n_tiles * tile.block_m * tile.block_n > n_sms * MOST_SUMS:
            break
        yield Cut(number, n_parts * n_tiles, n_tiles)


def twin_depth(call: Call, tile: MatmulTile) -> int:
    """How many of k a step of the twin takes: as many bytes of either size.

    Tensor cores multiply tf32 at half the rate, so that a step takes as many cycles.
    """
    return tile.block_k * ELEMENT_BYTES // call.dtype.itemsize


def step_depth(call: Call, tile: TensorCoresTile) -> int:
    """How many of k a step of tensor_cores takes: as many bytes of either size.

    Half as many where they come one by one, and wait in registers.
    """
    depth = tile.block_k * ELEMENT_BYTES // call.dtype.itemsize
    return depth if call.has_words else depth // 2


@functools.lru_cache(maxsize=4096)
def choose(
    call: Call,
    tiles: tuple[MatmulTile, ...],
    tensor_cores_tiles: tuple[TensorCoresTile, ...],
    n_sms: int,
    may_share: bool,
) -> tuple[MatmulRung, Cut]:
    """The rung and the cut that take the least time, of several the first.

    A rung that cannot serve the call has no tiles.
    """
    from_left = call.from_left()
    found = [
        (twin_cycles(from_left, tile, cut), MatmulRung.TWIN, cut)
        for number, tile in enumerate(tiles)
        for cut in twin_cuts(from_left, tile, number, n_sms, may_share)
    ]
    found += [
        (tensor_cores_cycles(call, tile, cut, n_sms), MatmulRung.TENSOR_CORES, cut)
        for number, tile in enumerate(tensor_cores_tiles)
        for cut in tensor_cores_cuts(call, tile, number, n_sms, may_share)
    ]
    return min(found, key=lambda each: each[0])[1:]
