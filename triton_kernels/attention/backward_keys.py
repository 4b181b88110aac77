"""The twin's gradients of keys and values: scores are computed transposed.

They are keys by queries, so that what follows from them is in the registers from which
it is multiplied again. A program owns keys, and takes the queries that see them, of all
heads that share them. Each warpgroup sums up 64 rows of both gradients in registers.
While one computes exponentials the tensor cores multiply for the other, and for itself:
gradients by values then, and afterwards the last sum together with the next step's
scores. No other program adds to the sums: the same call gives the same bits. Of the
queries both warpgroups take all that any of the program's keys is seen by, and mask
what they need not; CUDA's leave such tiles out, for which there are no registers here.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma_wait,
)

from triton_kernels.attention.backward_rings import (
    load_own_rows,
    load_queries_and_grads,
    make_row_stages,
    store_gradient,
)
from triton_kernels.attention.products import (
    add_scores,
    start_scores,
    start_values,
)
from triton_kernels.attention.ring import (
    make_barriers,
    make_ring,
    make_stages,
    release,
    wait_until_full,
)
from triton_kernels.attention.softmax import hide_unseeing
from triton_kernels.attention.tile_order import (
    key_tile_at,
    queries_of_all_keys,
)
from triton_kernels.common.math import LOG2_E


@gluon.jit
def add_step(
    scores,
    grad_k,
    grad_v,
    v,
    rings,
    n_used,
    row,
    key,
    sizes,
    window,
    scale_log2,
):
    """From a step's scores to the sums, the last of which is started only."""
    q_ring, grad_ring, lse_stages, delta_stages = rings
    BOX_SIZE: gl.constexpr = scores.shape[0]
    BLOCK_M: gl.constexpr = scores.shape[1]
    HEAD_DIM: gl.constexpr = v.shape[1]
    SCORES: gl.constexpr = scores.type.layout
    COLS: gl.constexpr = gl.SliceLayout(0, SCORES)
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    stage = n_used % q_ring[0].shape[0]
    # The queries that see all keys of the warpgroup need no mask.
    seeing_from, seeing_to = queries_of_all_keys(key, BOX_SIZE, sizes, window)
    q = q_ring[0].index(stage).reshape([BLOCK_M, HEAD_DIM])
    grad = wait_until_full(grad_ring, n_used)
    # The product is summed up from minus delta on, which saves registers.
    delta = delta_stages.index(stage).load(COLS)
    minus_delta = gl.zeros([BOX_SIZE, BLOCK_M], gl.float32, SCORES) - delta[None, :]
    grad_p = add_scores(minus_delta, v, grad)
    if (row < seeing_from) | (row + BLOCK_M > seeing_to):
        scores = hide_unseeing(scores, row, key, sizes, window)
    lse = lse_stages.index(stage).load(COLS)
    p = gl.exp2(scores * scale_log2 - lse[None, :])
    operand = gl.convert_layout(p.to(v.dtype), OPERAND)
    grad_v = start_values(grad_v, operand, grad)
    # One product goes on, the last that was started.
    grad_p = warpgroup_mma_wait(1, deps=(grad_p,))
    grad_scores = p * grad_p
    operand = gl.convert_layout(grad_scores.to(v.dtype), OPERAND)
    grad_k = start_values(grad_k, operand, q)
    return grad_k, grad_v


@gluon.jit
def sum_up(k, v, rings, key, first_row, n_steps, n_sharing, sizes, window, scale_log2):
    """A warpgroup's sums over the queries that see its keys, of all that share them."""
    q_ring, grad_ring, _, _ = rings
    BOX_SIZE: gl.constexpr = k.shape[0]
    HEAD_DIM: gl.constexpr = k.shape[1]
    BLOCK_M: gl.constexpr = q_ring[0].shape[2]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    no_scores = gl.zeros([BOX_SIZE, BLOCK_M], gl.float32, SCORES)
    grad_k = gl.zeros([BOX_SIZE, HEAD_DIM], gl.float32, SUMS)
    grad_v = gl.zeros([BOX_SIZE, HEAD_DIM], gl.float32, SUMS)

    # -- compute: a step's last sum together with the next step's scores
    n_all = n_sharing * n_steps
    row, end_row = first_row, first_row + n_steps * BLOCK_M
    q = wait_until_full(q_ring, 0)
    scores = warpgroup_mma_wait(0, deps=(start_scores(k, q, no_scores),))
    for n_used in range(n_all):
        grad_k, grad_v = add_step(
            *(scores, grad_k, grad_v, v, rings, n_used),
            *(row, key, sizes, window, scale_log2),
        )
        row = gl.where(row + BLOCK_M < end_row, row + BLOCK_M, first_row)
        # Behind the last step its scores are computed once more, for nobody.
        q = wait_until_full(q_ring, gl.minimum(n_used + 1, n_all - 1))
        scores = start_scores(k, q, no_scores)
        scores, grad_k, grad_v = warpgroup_mma_wait(0, deps=(scores, grad_k, grad_v))
        release(q_ring, n_used)
        release(grad_ring, n_used)
    return grad_k, grad_v


@gluon.jit
def consume(own, maps, rings, sizes, n_kv_heads, order, scale, BOX: gl.constexpr):
    """What a warpgroup does."""
    k_boxes, v_boxes, keys_full = own
    grad_k_map, grad_v_map = maps
    _, n_heads, _, _ = sizes
    BOX_SIZE: gl.constexpr = k_boxes.shape[2]
    HEAD_DIM: gl.constexpr = k_boxes.shape[4]
    BLOCK_M: gl.constexpr = rings[0][0].shape[2]
    BLOCK_N: gl.constexpr = k_boxes.shape[0] * BOX_SIZE
    # -- tile: a program owns BLOCK_N keys of a head
    batch, kv_head, key, first_row, n_steps = key_tile_at(
        gl.program_id(0), sizes, n_kv_heads, *order, BLOCK_M, BLOCK_N
    )
    key += BOX * BOX_SIZE
    k_box, v_box = k_boxes.index(BOX), v_boxes.index(BOX)
    mbarrier.wait(keys_full.index(0), 0)
    grad_k, grad_v = sum_up(
        k_box.reshape([BOX_SIZE, HEAD_DIM]),
        v_box.reshape([BOX_SIZE, HEAD_DIM]),
        *(rings, key, first_row, n_steps, n_heads // n_kv_heads),
        *(sizes, order[1], scale * LOG2_E),
    )

    # -- store: where the keys and values were, which all products have read by now
    store_gradient(grad_k_map, k_box, key, kv_head, batch, grad_k * scale)
    store_gradient(grad_v_map, v_box, key, kv_head, batch, grad_v)
    tma.store_wait(0)


@gluon.jit
def load(own, own_maps, rings, maps, statistics, sizes, n_kv_heads, order):
    """What the loading warp does."""
    k_boxes, v_boxes, keys_full = own
    lse_ptr, delta_ptr = statistics
    _, n_heads, n_queries, _ = sizes
    BLOCK_M: gl.constexpr = rings[0][0].shape[2]
    BLOCK_N: gl.constexpr = k_boxes.shape[0] * k_boxes.shape[2]
    batch, kv_head, key, first_row, n_steps = key_tile_at(
        gl.program_id(0), sizes, n_kv_heads, *order, BLOCK_M, BLOCK_N
    )
    load_own_rows(k_boxes, v_boxes, *own_maps, key, kv_head, batch, keys_full)
    n_sharing = n_heads // n_kv_heads
    for i in range(n_sharing):
        head = kv_head * n_sharing + i
        start = (batch * n_heads + head).to(gl.int64) * n_queries
        for step in range(n_steps):
            load_queries_and_grads(
                *(rings, maps, (lse_ptr + start, delta_ptr + start)),
                *(i * n_steps + step, first_row + step * BLOCK_M, n_queries),
                *(head, batch),
            )


@gluon.jit
def attention_backward_keys_kernel(
    grad_k_map,  # (n_batches, n_keys, n_kv_heads, head_dim)
    grad_v_map,  # of grad_k's shape
    grad_map,  # (n_batches, n_queries, n_heads, head_dim)
    q_map,  # of grad's shape
    k_map,  # of grad_k's shape
    v_map,  # of grad_k's shape
    lse_ptr,  # (n_batches, n_heads, n_queries)
    delta_ptr,  # (n_batches, n_heads, n_queries)
    n_batches,
    n_heads,
    n_kv_heads,
    n_queries,
    n_keys,
    heads_per_section,
    scale,
    window_left,
    window_right,
    NUM_STAGES: gl.constexpr,
):
    # -- tile: a program owns BLOCK_N keys of a head
    NUM_BOXES: gl.constexpr = 2  # of keys: one for each warpgroup
    sizes = n_batches, n_heads, n_queries, n_keys
    order = heads_per_section, (window_left, window_right)

    # -- load: by one warp
    k_boxes, v_boxes = make_stages(k_map, NUM_BOXES), make_stages(v_map, NUM_BOXES)
    own = k_boxes, v_boxes, make_barriers(1, 1)
    rings = (
        make_ring(q_map, NUM_STAGES, 2),
        make_ring(grad_map, NUM_STAGES, 2),
        make_row_stages(NUM_STAGES, q_map.block_type.shape[1]),
        make_row_stages(NUM_STAGES, q_map.block_type.shape[1]),
    )
    fence_async_shared()
    maps, own_maps, statistics = (q_map, grad_map), (k_map, v_map), (lse_ptr, delta_ptr)
    loader = own, own_maps, rings, maps, statistics, sizes, n_kv_heads, order

    # -- compute: a step's last sum together with the next step's scores
    # -- store: where the keys and values were, which all products have read by now
    grad_maps = grad_k_map, grad_v_map
    FIRST: gl.constexpr = 0
    SECOND: gl.constexpr = 1
    gl.warp_specialize(
        [
            (consume, (own, grad_maps, rings, sizes, n_kv_heads, order, scale, FIRST)),
            (consume, (own, grad_maps, rings, sizes, n_kv_heads, order, scale, SECOND)),
            (load, loader),
        ],
        *([4, 1], [240, 24]),
    )
