"""The twin: warpgroups take turns, so that tensor cores work during softmax.

One computes softmax while another keeps the tensor cores busy, and one warp does
nothing but load. A warpgroup has 64 queries. It starts the scores of one tile of keys
together with the product of the previous tile's exponentials, which never leave its
registers, and v; while that product runs, it works on the new scores. Tiles of keys
come from right to left, so that those in which a query does not see all keys come
first. A program takes one tile of queries after the other, and loads ahead into the
next one. Packed sequences are left to the third rung: TMA has zeros only behind the end
of a tensor, not behind that of a sequence.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
)

from triton_kernels.attention.ring import load_tiles, make_ring, make_stages
from triton_kernels.attention.steps import attend
from triton_kernels.attention.store import store_rows
from triton_kernels.attention.tile_order import hear, query_tile_at
from triton_kernels.common.math import LOG2_E, finite_origin
from triton_kernels.common.ring import make_barriers


@gluon.jit
def consume(common, HEAD_DIM: gl.constexpr, W: gl.constexpr):
    """What the W-th warpgroup does with its 64 rows of each tile of queries."""
    results, rings, turns, next_tile, sizes, order, scale = common
    out_map, lse_ptr, out_boxes = results
    q_ring, k_ring, v_ring = rings
    q_boxes, q_full, q_empty = q_ring
    n_batches, n_heads, n_queries, _ = sizes
    NUM_CONSUMERS: gl.constexpr = turns.shape[0]
    BOX_SIZE: gl.constexpr = q_boxes.shape[2]
    BLOCK_M: gl.constexpr = NUM_CONSUMERS * BOX_SIZE
    BLOCK_N: gl.constexpr = k_ring[0].shape[2]
    NUM_BOXES: gl.constexpr = q_boxes.shape[0] // NUM_CONSUMERS
    # -- tile: the loading warp takes one after the other, and tells which
    n_tiles = n_batches * n_heads * gl.cdiv(n_queries, BLOCK_M)
    if W == NUM_CONSUMERS - 1:
        mbarrier.arrive(turns.index(0), count=1)
    n_heard, n_used = 0, 0
    index = hear(next_tile, n_heard)
    while index < n_tiles:
        batch, head, row, last_key, n_steps = query_tile_at(
            index, sizes, *order, BLOCK_M, BLOCK_N
        )
        row += W * BOX_SIZE
        mbarrier.wait(q_full.index(0), n_heard & 1)
        outs, row_max, row_sum = attend(
            *(q_boxes, k_ring, v_ring, turns, n_used, row, last_key, n_steps),
            *(sizes, order[1], scale * LOG2_E),
            WARPGROUP=W,
            HEAD_DIM=HEAD_DIM,
        )
        if HEAD_DIM <= 128:
            mbarrier.arrive(q_empty.index(0), count=1)
        n_heard += 1
        n_used += n_steps

        # -- store: through shared memory, which the last tile's rows have left by now
        lse = finite_origin(row_max) * scale + gl.log(row_sum)
        queries = row + gl.arange(0, BOX_SIZE, row_max.type.layout)
        row_ptr = lse_ptr + (batch * n_heads + head).to(gl.int64) * n_queries
        gl.store(row_ptr + queries, lse, mask=queries < n_queries)
        place = batch, row, head
        store_rows(out_map, out_boxes, W * NUM_BOXES, place, outs, row_sum)
        if HEAD_DIM > 128:
            tma.store_wait(0)
            mbarrier.arrive(q_empty.index(0), count=1)
        index = hear(next_tile, n_heard)
    tma.store_wait(0)


@gluon.jit
def attention_kernel(
    out_map,  # (n_batches, n_queries, n_heads, head_dim)
    lse_ptr,  # (n_batches, n_heads, n_queries)
    n_taken_ptr,  # tiles that were taken, 0 at first; or None
    q_map,  # of out's shape
    k_map,  # (n_batches, n_keys, n_kv_heads, head_dim)
    v_map,  # of k's shape
    n_batches,
    n_heads,
    n_kv_heads,
    n_queries,
    n_keys,
    heads_per_section,
    scale,
    window_left,
    window_right,
    HEAD_DIM: gl.constexpr,
    NUM_CONSUMERS: gl.constexpr,
    NUM_STAGES: gl.constexpr,
):
    # -- tile: the loading warp takes one after the other, and tells which
    index = gl.allocate_shared_memory(
        gl.int32, [1], gl.SwizzledSharedLayout(1, 1, 1, [0])
    )
    next_tile = index, make_barriers(1, 1), make_barriers(1, NUM_CONSUMERS)
    sizes = n_batches, n_heads, n_queries, n_keys
    order = heads_per_section, (window_left, window_right)

    # -- load: by one warp, ahead into the next tile
    # Boxes have a power of two of columns: long rows take three, and of 96 columns the
    # last quarter of the only box is zeros.
    BOX_COLS: gl.constexpr = q_map.block_type.shape[3]
    NUM_BOXES: gl.constexpr = (HEAD_DIM + BOX_COLS - 1) // BOX_COLS
    q_boxes = make_stages(q_map, NUM_CONSUMERS * NUM_BOXES)
    q_ring = q_boxes, make_barriers(1, 1), make_barriers(1, NUM_CONSUMERS)
    k_ring = make_ring(k_map, NUM_STAGES, NUM_CONSUMERS, NUM_BOXES)
    v_ring = make_ring(v_map, NUM_STAGES, NUM_CONSUMERS, NUM_BOXES)
    maps, rings = (q_map, k_map, v_map), (q_ring, k_ring, v_ring)
    loader = maps, rings, next_tile, n_taken_ptr, sizes, n_kv_heads, order

    # -- compute: a step's scores together with the last step's values
    turns = make_barriers(NUM_CONSUMERS, 1)
    fence_async_shared()

    # -- store: through shared memory. Long rows of q leave no room for those of out,
    # which go where q was; shorter ones have their own, so that the next q comes sooner
    out_boxes = q_boxes
    if HEAD_DIM <= 128:
        out_boxes = make_stages(out_map, NUM_CONSUMERS * NUM_BOXES)
    results = out_map, lse_ptr, out_boxes
    common = results, rings, turns, next_tile, sizes, order, scale
    # A thread's registers, of which a program has 65536: it takes many to multiply, few
    # to load. The first warpgroup gets what the others leave, which is as many.
    if NUM_CONSUMERS == 2:
        gl.warp_specialize(
            [
                (consume, (common, HEAD_DIM, 0)),
                (consume, (common, HEAD_DIM, 1)),
                (load_tiles, loader),
            ],
            *([4, 1], [240, 24]),
        )
    else:
        gl.warp_specialize(
            [
                (consume, (common, HEAD_DIM, 0)),
                (consume, (common, HEAD_DIM, 1)),
                (consume, (common, HEAD_DIM, 2)),
                (load_tiles, loader),
            ],
            *([4, 4, 1], [160, 160, 32]),
        )
