"""The tiles that programs on Hopper take: of queries, or in the backward of keys, too.

Their order, the keys or queries that go with each, and how warps tell each other of the
next one.
"""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_kernels.attention.scores import seeing_queries, visible_keys


@triton.jit
def attention_count_kernel(n_taken_ptr):
    # -- tile: one number, the count of tiles that programs take
    # -- store: none was taken yet
    tl.store(n_taken_ptr, 0)


@triton.jit
def head_tile_at(index, n_all_heads, n_tiles, heads_per_section):
    """The index-th tile, as a head of all batches' heads, and one of its tiles.

    Tiles are counted head by head within heads_per_section heads, so that what they
    read stays in the L2 meanwhile.
    """
    first_head = index // (heads_per_section * n_tiles) * heads_per_section
    index -= first_head * n_tiles
    n_section = tl.minimum(n_all_heads - first_head, heads_per_section)
    return first_head + index % n_section, index // n_section


@triton.jit
def query_tile_at(
    index,
    sizes,
    heads_per_section,
    window,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The index-th tile: its batch, head and first query, and its tiles of keys.

    The latter as the first key of the last one and their number, as they are taken from
    the last one back to the first. There is one at least, even if no query sees it.

    Of causal queries the last ones see the most keys and come first, so that no program
    has a long tile left in the end.
    """
    n_batches, n_heads, n_queries, n_keys = sizes
    n_tiles = tl.cdiv(n_queries, BLOCK_M)
    head, tile = head_tile_at(index, n_batches * n_heads, n_tiles, heads_per_section)
    row = (n_tiles - 1 - tile) * BLOCK_M
    first_key, end_key = keys_of_rows(row, BLOCK_M, sizes, window)
    first_key = tl.minimum(first_key, n_keys - 1) // BLOCK_N * BLOCK_N
    n_steps = tl.maximum(tl.cdiv(end_key - first_key, BLOCK_N), 1)
    last_key = first_key + (n_steps - 1) * BLOCK_N
    return head // n_heads, head % n_heads, row, last_key, n_steps


@triton.jit
def keys_of_rows(row, N_ROWS: tl.constexpr, sizes, window):
    """The keys that any of N_ROWS queries sees, as the first and the end."""
    _, _, n_queries, n_keys = sizes
    last_row = tl.minimum(row + N_ROWS, n_queries) - 1
    first_key, _ = visible_keys(row, n_queries, n_keys, window[0], window[1])
    _, end_key = visible_keys(last_row, n_queries, n_keys, window[0], window[1])
    return first_key, end_key


@triton.jit
def keys_of_all_rows(row, N_ROWS: tl.constexpr, sizes, window):
    """Those that all of them see, likewise: they need no mask."""
    _, _, n_queries, n_keys = sizes
    last_row = row + N_ROWS - 1
    first_key, _ = visible_keys(last_row, n_queries, n_keys, window[0], window[1])
    _, end_key = visible_keys(row, n_queries, n_keys, window[0], window[1])
    return first_key, end_key


@triton.jit
def steps_of_rows(
    row, N_ROWS: tl.constexpr, last_key, n_steps, sizes, window, BLOCK_N: tl.constexpr
):
    """Which of a tile's steps N_ROWS of its queries take, as the first and the end.

    In the others none of them sees a key.
    """
    first_key, end_key = keys_of_rows(row, N_ROWS, sizes, window)
    first = tl.maximum(last_key - end_key + BLOCK_N, 0) // BLOCK_N
    end = tl.minimum((last_key - first_key + 2 * BLOCK_N - 1) // BLOCK_N, n_steps)
    see_none = (row >= sizes[2]) | (first_key >= end_key)
    return tl.where(see_none, n_steps, first), tl.where(see_none, n_steps, end)


@triton.jit
def queries_of_keys(key, N_KEYS: tl.constexpr, sizes, window):
    """The queries that see any of N_KEYS keys, as the first and the end."""
    _, _, n_queries, n_keys = sizes
    last_key = tl.minimum(key + N_KEYS, n_keys) - 1
    first_row, _ = seeing_queries(key, n_queries, n_keys, window[0], window[1])
    _, end_row = seeing_queries(last_key, n_queries, n_keys, window[0], window[1])
    return first_row, end_row


@triton.jit
def are_seen(key, N_KEYS: tl.constexpr, sizes, window):
    """Whether any query sees any of N_KEYS keys."""
    first_row, end_row = queries_of_keys(key, N_KEYS, sizes, window)
    return first_row < end_row


@triton.jit
def queries_of_all_keys(key, N_KEYS: tl.constexpr, sizes, window):
    """Those that see all of them, likewise: they need no mask."""
    _, _, n_queries, n_keys = sizes
    last_key = key + N_KEYS - 1
    first_row, _ = seeing_queries(last_key, n_queries, n_keys, window[0], window[1])
    _, end_row = seeing_queries(key, n_queries, n_keys, window[0], window[1])
    return first_row, end_row


@triton.jit
def key_tile_at(
    index,
    sizes,
    n_kv_heads,
    sections,
    window,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The index-th tile of keys: its batch, head and first key, and tiles of queries.

    The latter as the first query of the first one and their number, for each head that
    shares the keys. There is one at least, even if no query sees them. Last, whether
    the head's keys are taken from the last ones back to the first.

    Causal keys that come first are seen by the most queries, and are taken first, so
    that no program has a long tile left in the end. Only in the first n_from_last heads
    keys are taken from the last ones back.
    """
    n_batches, _, n_queries, n_keys = sizes
    heads_per_section, n_from_last = sections
    n_tiles = tl.cdiv(n_keys, BLOCK_N)
    head, tile = head_tile_at(index, n_batches * n_kv_heads, n_tiles, heads_per_section)
    is_from_last = head < n_from_last
    key = tl.where(is_from_last, n_tiles - 1 - tile, tile) * BLOCK_N
    first_row, end_row = queries_of_keys(key, BLOCK_N, sizes, window)
    first_row = tl.minimum(first_row, n_queries - 1) // BLOCK_M * BLOCK_M
    n_steps = tl.maximum(tl.cdiv(end_row - first_row, BLOCK_M), 1)
    batch, kv_head = head // n_kv_heads, head % n_kv_heads
    return batch, kv_head, key, first_row, n_steps, is_from_last


@triton.jit
def first_step(first_row, n_steps, is_from_last, BLOCK_M: tl.constexpr):
    """The row of a tile's first step, and how many rows lead to the next ones.

    From the last queries back to the first, or the other way around if keys are, too.
    """
    last_row = first_row + (n_steps - 1) * BLOCK_M
    row = tl.where(is_from_last, first_row, last_row)
    return row, tl.where(is_from_last, BLOCK_M, -BLOCK_M)


@triton.jit
def step_behind(head, row, row_step, n_sharing):
    """The step behind one of a tile of keys, as a head that shares them and a query.

    Of the same queries, head by head.
    """
    is_last = head + 1 == n_sharing
    return tl.where(is_last, 0, head + 1), tl.where(is_last, row + row_step, row)


@gluon.jit
def uniform(x):
    """A number that all threads have, broadcast from one lane.

    The compiler then knows it to be uniform in a warp, and what follows from it takes
    no registers of threads.
    """
    return gl.inline_asm_elementwise(
        "shfl.sync.idx.b32 $0, $1, 0, 31, -1;",
        "=r, r",
        [x],
        dtype=gl.int32,
        is_pure=True,
        pack=1,
    )


@gluon.jit
def tell(next_tile, count, index):
    """By the loading warp, after `count` tiles: which one comes next."""
    memory, full, empty = next_tile
    LAYOUT: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    mbarrier.wait(empty.index(0), count & 1 ^ 1)
    memory.store(gl.full([1], index, gl.int32, LAYOUT))
    mbarrier.arrive(full.index(0), count=1)


@gluon.jit
def hear(next_tile, count):
    """By a warpgroup, after `count` tiles: which one comes next."""
    memory, full, empty = next_tile
    LAYOUT: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    mbarrier.wait(full.index(0), count & 1)
    index = uniform(memory.load(LAYOUT))
    mbarrier.arrive(empty.index(0), count=1)
    return gl.max(index, 0)
