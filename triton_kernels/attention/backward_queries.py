"""The twin's gradients of queries where rows are long.

As in the forward a program owns queries; keys and values come by rings. A warpgroup has
64 queries, and sums up their gradients in registers. The gradients of a tile of scores
never leave them, and are multiplied by the keys together with the next tile's scores.
Three products of the seven are computed here, two of them once more: that saves sums
over several programs in memory, and the same call gives the same bits.
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
    lse_to_log2,
    skip_steps,
    store_gradient,
    zero_in_loop,
)
from triton_kernels.attention.products import start_scores, start_values
from triton_kernels.attention.ring import (
    load_stage,
    make_ring,
    make_stages,
    matrix_at,
    wait_until_full,
)
from triton_kernels.attention.softmax import hide_unseen
from triton_kernels.attention.tile_order import (
    keys_of_all_rows,
    query_tile_at,
    steps_of_rows,
)
from triton_kernels.common.math import LOG2_E
from triton_kernels.common.ring import make_barriers, release


@gluon.jit
def add_step(
    scores,
    grad_q,
    grad,
    rings,
    n_used,
    lse,
    delta,
    row,
    key,
    sizes,
    window,
    scale_log2,
):
    """From a step's scores to the sum, which is started only."""
    k_ring, v_ring = rings
    BOX_SIZE: gl.constexpr = scores.shape[0]
    BLOCK_N: gl.constexpr = scores.shape[1]
    HEAD_DIM: gl.constexpr = grad.shape[1]
    SCORES: gl.constexpr = scores.type.layout
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, grad_q.type.layout, 2)
    # The keys that all queries of the warpgroup see need no mask.
    seen_from, seen_to = keys_of_all_rows(row, BOX_SIZE, sizes, window)
    v = wait_until_full(v_ring, n_used)
    no_scores = gl.zeros([BOX_SIZE, BLOCK_N], gl.float32, SCORES)
    grad_p = start_scores(grad, v, no_scores)
    if (key < seen_from) | (key + BLOCK_N > seen_to):
        scores = hide_unseen(scores, row, key, sizes, window)
    p = gl.exp2(scores * scale_log2 - lse[:, None])
    grad_p = warpgroup_mma_wait(0, deps=(grad_p,))
    release(v_ring, n_used)
    grad_scores = p * (grad_p - delta[:, None])
    operand = gl.convert_layout(grad_scores.to(grad.dtype), OPERAND)
    k = k_ring[0].index(n_used % k_ring[0].shape[0]).reshape([BLOCK_N, HEAD_DIM])
    return start_values(grad_q, operand, k)


@gluon.jit
def sum_up(
    q_boxes,
    grad_boxes,
    rings,
    statistics,
    row,
    last_key,
    n_steps,
    sizes,
    window,
    scale_log2,
    W: gl.constexpr,
):
    """A warpgroup's sums over the keys that its queries see."""
    k_ring, v_ring = rings
    lse_ptr, delta_ptr = statistics
    BOX_SIZE: gl.constexpr = q_boxes.shape[2]
    HEAD_DIM: gl.constexpr = q_boxes.shape[4]
    BLOCK_N: gl.constexpr = k_ring[0].shape[2]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    first_step, end_step = steps_of_rows(
        row, BOX_SIZE, last_key, n_steps, sizes, window, BLOCK_N
    )
    rows = row + gl.arange(0, BOX_SIZE, gl.SliceLayout(1, SCORES))
    is_row = rows < sizes[2]
    lse = lse_to_log2(gl.load(lse_ptr + rows, mask=is_row, other=-float("inf")))
    delta = gl.load(delta_ptr + rows, mask=is_row, other=0.0)
    no_scores = gl.zeros([BOX_SIZE, BLOCK_N], gl.float32, SCORES)
    grad_q = gl.zeros([BOX_SIZE, HEAD_DIM], gl.float32, SUMS)

    # -- compute: a step's sum together with the next step's scores
    skip_steps(k_ring, v_ring, 0, first_step)
    if first_step < end_step:
        q, k = matrix_at(q_boxes, W), wait_until_full(k_ring, first_step)
        scores = warpgroup_mma_wait(0, deps=(start_scores(q, k, no_scores),))
        for step in range(first_step, end_step - 1):
            key = last_key - step * BLOCK_N
            # Keys are counted here: the compiler knows that steps are few.
            own = W + zero_in_loop(key)
            q, grad = matrix_at(q_boxes, own), matrix_at(grad_boxes, own)
            grad_q = add_step(
                *(scores, grad_q, grad, rings, step, lse, delta, row),
                *(key, sizes, window, scale_log2),
            )
            k = wait_until_full(k_ring, step + 1)
            scores = start_scores(q, k, no_scores)
            scores, grad_q = warpgroup_mma_wait(0, deps=(scores, grad_q))
            release(k_ring, step)
        last_step, grad = end_step - 1, matrix_at(grad_boxes, W)
        grad_q = add_step(
            *(scores, grad_q, grad, rings, last_step, lse, delta, row),
            *(last_key - last_step * BLOCK_N, sizes, window, scale_log2),
        )
        grad_q = warpgroup_mma_wait(0, deps=(grad_q,))
        release(k_ring, last_step)
    skip_steps(k_ring, v_ring, end_step, n_steps - end_step)
    return grad_q


@gluon.jit
def consume(own, grad_q_map, rings, statistics, sizes, order, scale, W: gl.constexpr):
    """What the W-th warpgroup does."""
    q_boxes, grad_boxes, queries_full = own
    lse_ptr, delta_ptr = statistics
    _, n_heads, n_queries, _ = sizes
    BOX_SIZE: gl.constexpr = q_boxes.shape[2]
    BLOCK_M: gl.constexpr = q_boxes.shape[0] * BOX_SIZE
    BLOCK_N: gl.constexpr = rings[0][0].shape[2]
    # -- tile: a program owns BLOCK_M queries of a head
    batch, head, row, last_key, n_steps = query_tile_at(
        gl.program_id(0), sizes, *order, BLOCK_M, BLOCK_N
    )
    row += W * BOX_SIZE
    start = (batch * n_heads + head).to(gl.int64) * n_queries
    mbarrier.wait(queries_full.index(0), 0)
    grad_q = sum_up(
        *(q_boxes, grad_boxes, rings, (lse_ptr + start, delta_ptr + start)),
        *(row, last_key, n_steps, sizes, order[1], scale * LOG2_E, W),
    )

    # -- store: where the queries were, which all products have read by now
    store_gradient(grad_q_map, q_boxes.index(W), row, head, batch, grad_q * scale)
    tma.store_wait(0)


@gluon.jit
def load(own, own_maps, rings, maps, sizes, n_kv_heads, order):
    """What the loading warp does."""
    q_boxes, grad_boxes, queries_full = own
    k_ring, v_ring = rings
    k_map, v_map = maps
    BLOCK_M: gl.constexpr = q_boxes.shape[0] * q_boxes.shape[2]
    BLOCK_N: gl.constexpr = k_ring[0].shape[2]
    batch, head, row, last_key, n_steps = query_tile_at(
        gl.program_id(0), sizes, *order, BLOCK_M, BLOCK_N
    )
    load_own_rows(q_boxes, grad_boxes, *own_maps, row, head, batch, queries_full)
    kv_head = head // (sizes[1] // n_kv_heads)
    for step in range(n_steps):
        key = last_key - step * BLOCK_N
        load_stage(k_ring, step, k_map, key, kv_head, batch)
        load_stage(v_ring, step, v_map, key, kv_head, batch)


@gluon.jit
def attention_backward_queries_kernel(
    grad_q_map,  # (n_batches, n_queries, n_heads, head_dim)
    grad_map,  # of grad_q's shape
    q_map,  # of grad_q's shape
    k_map,  # (n_batches, n_keys, n_kv_heads, head_dim)
    v_map,  # of k's shape
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
    K_STAGES: gl.constexpr,
    V_STAGES: gl.constexpr,
):
    # -- tile: a program owns BLOCK_M queries of a head
    NUM_CONSUMERS: gl.constexpr = 2
    sizes = n_batches, n_heads, n_queries, n_keys
    order = heads_per_section, (window_left, window_right)

    # -- load: by one warp
    q_boxes = make_stages(q_map, NUM_CONSUMERS)
    own = q_boxes, make_stages(grad_map, NUM_CONSUMERS), make_barriers(1, 1)
    rings = (
        make_ring(k_map, K_STAGES, NUM_CONSUMERS),
        make_ring(v_map, V_STAGES, NUM_CONSUMERS),
    )
    fence_async_shared()
    maps, own_maps, statistics = (k_map, v_map), (q_map, grad_map), (lse_ptr, delta_ptr)
    loader = own, own_maps, rings, maps, sizes, n_kv_heads, order

    # -- compute: a step's sum together with the next step's scores
    # -- store: where the queries were, which all products have read by now
    FIRST: gl.constexpr = 0
    SECOND: gl.constexpr = 1
    gl.warp_specialize(
        [
            (consume, (own, grad_q_map, rings, statistics, sizes, order, scale, FIRST)),
            (
                consume,
                (own, grad_q_map, rings, statistics, sizes, order, scale, SECOND),
            ),
            (load, loader),
        ],
        *([4, 1], [240, 24]),
    )
