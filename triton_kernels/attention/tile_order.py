"""The tiles of queries that attention_kernel's programs take.

Their order, the keys that go with each, and how warps tell each other of the next one.
"""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_kernels.attention.scores import visible_keys


@triton.jit
def attention_count_kernel(n_taken_ptr):
    # -- tile: one number, the count of tiles that programs take
    # -- store: none was taken yet
    tl.store(n_taken_ptr, 0)


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
    has a long tile left in the end. Tiles are counted head by head within
    heads_per_section heads, whose keys and values stay in the L2 meanwhile.
    """
    n_batches, n_heads, n_queries, n_keys = sizes
    n_tile_rows = tl.cdiv(n_queries, BLOCK_M)
    first_head = index // (heads_per_section * n_tile_rows) * heads_per_section
    index -= first_head * n_tile_rows
    n_section = tl.minimum(n_batches * n_heads - first_head, heads_per_section)
    head = first_head + index % n_section
    row = (n_tile_rows - 1 - index // n_section) * BLOCK_M
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
    # Broadcast from one lane, so that the compiler knows it to be uniform in a warp,
    # and what follows from it takes no registers of threads.
    index = gl.inline_asm_elementwise(
        "shfl.sync.idx.b32 $0, $1, 0, 31, -1;",
        "=r, r",
        [memory.load(LAYOUT)],
        dtype=gl.int32,
        is_pure=True,
        pack=1,
    )
    mbarrier.arrive(empty.index(0), count=1)
    return gl.max(index, 0)
