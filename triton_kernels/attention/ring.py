"""The rings in shared memory through which keys and values come to attention_kernel.

And the warp that fills them. The backward's kernels have such rings too;
backward_rings.py has the rest of theirs.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_kernels.attention.tile_order import query_tile_at, tell
from triton_kernels.common.gluon_names import tma_load
from triton_kernels.common.ring import make_barriers, wait_for_tile, wait_until_empty


@gluon.jit
def make_stages(map, N: gl.constexpr):
    """Shared memory for N blocks of a tensor."""
    BLOCK: gl.constexpr = map.block_type.shape
    return gl.allocate_shared_memory(
        map.dtype, [N, 1, BLOCK[1], 1, BLOCK[3]], map.layout
    )


@gluon.jit
def make_ring(
    map,
    NUM_STAGES: gl.constexpr,
    NUM_CONSUMERS: gl.constexpr,
    NUM_BOXES: gl.constexpr = 1,
):
    """Stages that hold a tile of k or v each: boxes with a part of its columns.

    `full` tells the consumers that one has come, `empty` tells the loading warp that
    all of them have used it.
    """
    full = make_barriers(NUM_STAGES, 1)
    empty = make_barriers(NUM_STAGES, NUM_CONSUMERS)
    return make_stages(map, NUM_STAGES * NUM_BOXES), full, empty


@gluon.jit
def matrix_at(boxes, i):
    """The i-th box, without the dimensions of 1 that tensor maps have."""
    return boxes.index(i).reshape([boxes.shape[2], boxes.shape[4]])


@gluon.jit
def box_of(ring, count, i: gl.constexpr):
    """The i-th box of the tile that comes after `count` others, as a matrix."""
    boxes, full, _ = ring
    NUM_STAGES: gl.constexpr = full.shape[0]
    NUM_BOXES: gl.constexpr = boxes.shape[0] // NUM_STAGES
    return matrix_at(boxes, count % NUM_STAGES * NUM_BOXES + i)


@gluon.jit
def wait_until_full(ring, count):
    """The first box of that tile, once the tile has come."""
    wait_for_tile(ring, count)
    return box_of(ring, count, 0)


@gluon.jit
def load_stage(ring, count, map, key, kv_head, batch):
    """Starts to load keys or values, once all have used what was in their stage."""
    boxes, full, _ = ring
    NUM_BOXES: gl.constexpr = boxes.shape[0] // full.shape[0]
    BOX_COLS: gl.constexpr = boxes.shape[4]
    stage = count % full.shape[0]
    wait_until_empty(ring, count)
    mbarrier.expect(full.index(stage), NUM_BOXES * map.block_type.nbytes)
    for i in gl.static_range(NUM_BOXES):
        place = [batch, key, kv_head, i * BOX_COLS]
        tma_load(map, place, full.index(stage), boxes.index(stage * NUM_BOXES + i))


@gluon.jit
def load_queries(q_ring, count, map, row, head, batch, NUM_BOXES: gl.constexpr):
    """Starts to load the queries of all warpgroups, once they have used the last."""
    boxes, full, empty = q_ring
    ALL_BOXES: gl.constexpr = boxes.shape[0]
    BOX_SIZE: gl.constexpr = boxes.shape[2]
    BOX_COLS: gl.constexpr = boxes.shape[4]
    mbarrier.wait(empty.index(0), count & 1 ^ 1)
    mbarrier.expect(full.index(0), ALL_BOXES * map.block_type.nbytes)
    for i in gl.static_range(ALL_BOXES):
        box_row = row + i // NUM_BOXES * BOX_SIZE
        place = [batch, box_row, head, i % NUM_BOXES * BOX_COLS]
        tma_load(map, place, full.index(0), boxes.index(i))


@gluon.jit
def load_tiles(maps, rings, next_tile, n_taken_ptr, sizes, n_kv_heads, order):
    """What the loading warp does: it goes ahead into the next tile of queries.

    It takes one after the other, by a count that all programs share where tiles differ
    in length, or else every num_programs-th one.
    """
    q_map, k_map, v_map = maps
    q_ring, k_ring, v_ring = rings
    n_batches, n_heads, n_queries, _ = sizes
    NUM_BOXES: gl.constexpr = k_ring[0].shape[0] // k_ring[1].shape[0]
    BLOCK_M: gl.constexpr = q_ring[0].shape[0] // NUM_BOXES * q_ring[0].shape[2]
    BLOCK_N: gl.constexpr = k_ring[0].shape[2]
    n_tiles = n_batches * n_heads * gl.cdiv(n_queries, BLOCK_M)
    index, n_told, n_loaded = gl.program_id(0), 0, 0
    while index < n_tiles:
        tell(next_tile, n_told, index)
        batch, head, row, last_key, n_steps = query_tile_at(
            index, sizes, *order, BLOCK_M, BLOCK_N
        )
        kv_head = head // (n_heads // n_kv_heads)
        # Keys are needed, and come, a step earlier than their values.
        load_stage(k_ring, n_loaded, k_map, last_key, kv_head, batch)
        load_queries(q_ring, n_told, q_map, row, head, batch, NUM_BOXES)
        for step in range(1, n_steps):
            key = last_key - step * BLOCK_N
            load_stage(k_ring, n_loaded + step, k_map, key, kv_head, batch)
            key += BLOCK_N
            load_stage(v_ring, n_loaded + step - 1, v_map, key, kv_head, batch)
        n_loaded += n_steps
        key = last_key - (n_steps - 1) * BLOCK_N
        load_stage(v_ring, n_loaded - 1, v_map, key, kv_head, batch)
        n_told += 1
        if n_taken_ptr is None:
            index += gl.num_programs(0)
        else:
            n_taken = gl.atomic_add(n_taken_ptr, 1, sem="relaxed")
            index = gl.num_programs(0) + n_taken
    tell(next_tile, n_told, n_tiles)
