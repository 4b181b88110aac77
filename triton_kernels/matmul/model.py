"""Which tiles a call of matmul's twin is cut into, by a model of the time they take.

The time is in cycles of a multiprocessor. A program multiplies its steps, each 64 of k,
as fast as the tensor cores or the L2 allow, or all wait for the memory. Then come the
ends of tiles, and what parts of tiles cost. The mirror of csrc/matmul/model.cuh, which
says where the numbers are from, and by which CUDA's launcher chooses. Triton's twin
shares no tiles so far, and its launcher goes by tables.py: tests alone use this.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

STEP = 64  # of k
L2_BYTES, MEMORY_BYTES = 9400, 2400  # in a cycle
# What each row or column of a tile that lies outside of a or b adds to a step.
OUTER_CYCLES = 2
# Of parts of tiles: what a multiprocessor writes or reads of them in a cycle, and how
# long it takes to start the counts, and to learn who comes last.
PART_BYTES, PART_CYCLES = 28, 4600
# How much longer steps take where programs begin within tiles, each at another k.
UNEVEN_PERCENT = 29
MOST_PARTS = 32  # of a tile, where all have as many
MOST_STEPS = 1 << 22  # of a tile that is shared, counted in 32 bits
ELEMENT_BYTES, SUM_BYTES = 2, 4


class Product(NamedTuple):
    """The sizes of a call."""

    n_batches: int
    M: int
    N: int
    K: int


class Tile(NamedTuple):
    """A tile, and the cycles that it takes."""

    block_m: int
    block_n: int
    step_cycles: int  # of 64 of k, where the L2 keeps up
    tile_cycles: int  # between two tiles
    ends_cycles: int  # before the first step and after the last one


class Cut(NamedTuple):
    """How a call is cut up; programs share the steps of the first n_streamed tiles."""

    tile: int  # its place in a table
    n_blocks: int
    n_streamed: int


def count_tiles(product: Product, tile: Tile) -> int:
    """How many a call has."""
    n_tile_rows = ceil_div(product.M, tile.block_m)
    return product.n_batches * n_tile_rows * ceil_div(product.N, tile.block_n)


def ceil_div(a: int, b: int) -> int:
    """The quotient, rounded up."""
    return -(-a // b)


def cycles(product: Product, tile: Tile, cut: Cut) -> int:
    """The time that a call takes, cut up like this."""
    _, n_blocks, n_streamed = cut
    n_batches, n_rows, n_cols, depth = product
    n_steps = ceil_div(depth, STEP)
    n_whole = ceil_div(count_tiles(product, tile) - n_streamed, n_blocks)
    n_shared_steps = ceil_div(n_streamed * n_steps, n_blocks)

    # Where all tiles have as many parts of as many steps, no program begins within one.
    n_parts = n_blocks // n_streamed if n_streamed else 1
    is_even = n_streamed <= 1 or (
        n_parts * n_streamed == n_blocks and n_steps % n_parts == 0
    )

    n_loaded = tile.block_m + tile.block_n
    step_bytes = n_loaded * min(depth, STEP) * ELEMENT_BYTES
    step = max(tile.step_cycles, n_blocks * step_bytes // L2_BYTES)
    step = step * (100 if is_even else 100 + UNEVEN_PERCENT) // 100
    n_elements = n_batches * (n_rows * depth + depth * n_cols + n_rows * n_cols)
    bound = n_elements * ELEMENT_BYTES // MEMORY_BYTES
    n_outer = max(tile.block_m - n_rows, 0) + max(tile.block_n - n_cols, 0)
    n_block_steps = n_whole * n_steps + n_shared_steps
    products = max(n_block_steps * step, bound)
    products += n_block_steps * n_outer * OUTER_CYCLES
    if n_streamed == 0:
        return products + tile.ends_cycles + (n_whole - 1) * tile.tile_cycles

    parts_of_block = ceil_div(n_streamed, n_blocks) + (not is_even)
    parts_of_tile = ceil_div(n_blocks, n_streamed) + (not is_even)
    part_bytes = tile.block_m * tile.block_n * SUM_BYTES
    return (
        products
        + tile.ends_cycles
        + (n_whole + parts_of_block - 1) * tile.tile_cycles
        + PART_CYCLES
        + parts_of_tile * part_bytes // PART_BYTES
    )


def cuts(
    product: Product, tile: Tile, number: int, n_sms: int, may_share: bool
) -> Iterator[Cut]:
    """The cuts into a tile that are worth it, those without parts first."""
    n_tiles, n_steps = count_tiles(product, tile), ceil_div(product.K, STEP)
    n_left = n_tiles % n_sms
    yield Cut(number, min(n_tiles, n_sms), 0)
    if not may_share or not 1 < n_steps <= MOST_STEPS or n_left == 0:
        return
    if n_tiles > n_sms:
        if n_left * n_steps >= n_sms:
            yield Cut(number, n_sms, n_left)
        yield Cut(number, n_sms, n_left + n_sms)
        return
    for n_parts in range(2, min(MOST_PARTS, n_steps, n_sms // n_tiles) + 1):
        yield Cut(number, n_parts * n_tiles, n_tiles)
    if n_tiles * n_steps >= n_sms:
        yield Cut(number, n_sms, n_tiles)


def choose(product: Product, tiles: Sequence[Tile], n_sms: int, may_share: bool) -> Cut:
    """The cut that takes the least time, of several the first."""
    return min(
        (
            cut
            for number, tile in enumerate(tiles)
            for cut in cuts(product, tile, number, n_sms, may_share)
        ),
        key=lambda cut: cycles(product, tiles[cut.tile], cut),
    )
