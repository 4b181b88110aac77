"""The twin's gradients of keys and values where rows are long: scores are transposed.

They are keys by queries, so that what follows from them is in the registers from which
it is multiplied again. A program owns keys, and takes the queries that see them, of all
heads that share them. Sums of so many columns fill the registers: of the same keys one
warpgroup sums up the gradients, and the other those of values. While one computes
exponentials the tensor cores multiply for the other, and for itself: gradients by
values then, and afterwards the sum together with the next step's scores. No other
program adds to the sums: the same call gives the same bits.
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
    load_for_keys,
    make_row_stages,
    store_gradient,
    wait_for_each_other,
    zero_in_loop,
)
from triton_kernels.attention.products import add_scores, start_scores, start_values
from triton_kernels.attention.ring import (
    make_ring,
    make_stages,
    matrix_at,
    wait_until_full,
)
from triton_kernels.attention.softmax import hide_unseeing
from triton_kernels.attention.tile_order import key_tile_at, queries_of_all_keys
from triton_kernels.common.math import LOG2_E
from triton_kernels.common.ring import make_barriers, release


@gluon.jit
def add_step(
    scores,
    sums,
    v,
    rings,
    n_used,
    row,
    key,
    sizes,
    window,
    scale_log2,
    IS_OF_K: gl.constexpr,
):
    """From a step's scores to the sum, which is started only."""
    q_ring, grad_ring, lse_stages, delta_stages = rings
    BLOCK_N: gl.constexpr = scores.shape[0]
    BLOCK_M: gl.constexpr = scores.shape[1]
    HEAD_DIM: gl.constexpr = v.shape[1]
    SCORES: gl.constexpr = scores.type.layout
    COLS: gl.constexpr = gl.SliceLayout(0, SCORES)
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, sums.type.layout, 2)
    stage = n_used % q_ring[0].shape[0]
    # The queries that see all keys need no mask.
    seeing_from, seeing_to = queries_of_all_keys(key, BLOCK_N, sizes, window)
    q = q_ring[0].index(stage).reshape([BLOCK_M, HEAD_DIM])
    grad = wait_until_full(grad_ring, n_used)
    if IS_OF_K:
        # The product is summed up from minus delta on, which saves registers.
        delta = delta_stages.index(stage).load(COLS)
        minus_delta = gl.zeros([BLOCK_N, BLOCK_M], gl.float32, SCORES) - delta[None, :]
        grad_p = add_scores(minus_delta, v, grad)
    if (row < seeing_from) | (row + BLOCK_M > seeing_to):
        scores = hide_unseeing(scores, row, key, sizes, window)
    lse = lse_stages.index(stage).load(COLS)
    p = gl.exp2(scores * scale_log2 - lse[None, :])
    if IS_OF_K:
        grad_scores = p * warpgroup_mma_wait(0, deps=(grad_p,))
        operand = gl.convert_layout(grad_scores.to(v.dtype), OPERAND)
        sums = start_values(sums, operand, q)
    else:
        operand = gl.convert_layout(p.to(v.dtype), OPERAND)
        sums = start_values(sums, operand, grad)
    return sums


@gluon.jit
def sum_up(
    own,
    rings,
    key,
    first_row,
    n_steps,
    n_sharing,
    sizes,
    window,
    scale_log2,
    IS_OF_K: gl.constexpr,
):
    """A warpgroup's sums over the queries that see the keys, of all that share them."""
    k_boxes, v_boxes, _, _ = own
    q_ring, grad_ring, _, _ = rings
    BLOCK_N: gl.constexpr = k_boxes.shape[2]
    HEAD_DIM: gl.constexpr = k_boxes.shape[4]
    BLOCK_M: gl.constexpr = q_ring[0].shape[2]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    no_scores = gl.zeros([BLOCK_N, BLOCK_M], gl.float32, SCORES)
    sums = gl.zeros([BLOCK_N, HEAD_DIM], gl.float32, SUMS)

    # -- compute: a step's sum together with the next step's scores
    n_all = n_sharing * n_steps
    row, end_row = first_row, first_row + n_steps * BLOCK_M
    k, q = matrix_at(k_boxes, 0), wait_until_full(q_ring, 0)
    scores = warpgroup_mma_wait(0, deps=(start_scores(k, q, no_scores),))
    for n_used in range(n_all):
        zero = zero_in_loop(n_used)
        k, v = matrix_at(k_boxes, zero), matrix_at(v_boxes, zero)
        sums = add_step(
            *(scores, sums, v, rings, n_used),
            *(row, key, sizes, window, scale_log2, IS_OF_K),
        )
        row = gl.where(row + BLOCK_M < end_row, row + BLOCK_M, first_row)
        # Behind the last step its scores are computed once more, for nobody.
        q = wait_until_full(q_ring, gl.minimum(n_used + 1, n_all - 1))
        scores = start_scores(k, q, no_scores)
        scores, sums = warpgroup_mma_wait(0, deps=(scores, sums))
        release(q_ring, n_used)
        release(grad_ring, n_used)
    return sums


@gluon.jit
def consume(own, maps, rings, sizes, n_kv_heads, order, scale, IS_OF_K: gl.constexpr):
    """What a warpgroup does: it sums up grad_k, or grad_v."""
    k_boxes, v_boxes, keys_full, keys_read = own
    grad_k_map, grad_v_map = maps
    _, n_heads, _, _ = sizes
    BLOCK_N: gl.constexpr = k_boxes.shape[2]
    BLOCK_M: gl.constexpr = rings[0][0].shape[2]
    # -- tile: a program owns BLOCK_N keys of a head
    batch, kv_head, key, first_row, n_steps, _ = key_tile_at(
        gl.program_id(0), sizes, n_kv_heads, *order, BLOCK_M, BLOCK_N
    )
    mbarrier.wait(keys_full.index(0), 0)
    sums = sum_up(
        *(own, rings, key, first_row, n_steps, n_heads // n_kv_heads),
        *(sizes, order[1], scale * LOG2_E, IS_OF_K),
    )

    # -- store: where the keys and values were, which all products have read by now
    wait_for_each_other(keys_read)
    if IS_OF_K:
        k_box = k_boxes.index(0)
        store_gradient(grad_k_map, k_box, key, kv_head, batch, sums * scale)
    else:
        v_box = v_boxes.index(0)
        store_gradient(grad_v_map, v_box, key, kv_head, batch, sums)
    tma.store_wait(0)


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
    NUM_CONSUMERS: gl.constexpr = 2
    sizes = n_batches, n_heads, n_queries, n_keys
    order = (heads_per_section, 0), (window_left, window_right)

    # -- load: by one warp
    keys_full, keys_read = make_barriers(1, 1), make_barriers(1, NUM_CONSUMERS)
    own = make_stages(k_map, 1), make_stages(v_map, 1), keys_full, keys_read
    rings = (
        make_ring(q_map, NUM_STAGES, NUM_CONSUMERS),
        make_ring(grad_map, NUM_STAGES, NUM_CONSUMERS),
        make_row_stages(NUM_STAGES, q_map.block_type.shape[1]),
        make_row_stages(NUM_STAGES, q_map.block_type.shape[1]),
    )
    fence_async_shared()
    maps, own_maps, statistics = (q_map, grad_map), (k_map, v_map), (lse_ptr, delta_ptr)
    loader = own, own_maps, rings, maps, statistics, sizes, n_kv_heads, order

    # -- compute: a step's last sum together with the next step's scores
    # -- store: where the keys and values were, which all products have read by now
    grad_maps = grad_k_map, grad_v_map
    OF_K: gl.constexpr = True
    OF_V: gl.constexpr = False
    gl.warp_specialize(
        [
            (consume, (own, grad_maps, rings, sizes, n_kv_heads, order, scale, OF_K)),
            (consume, (own, grad_maps, rings, sizes, n_kv_heads, order, scale, OF_V)),
            (load_for_keys, loader),
        ],
        *([4, 1], [240, 24]),
    )
