"""The twin: all gradients at once, which is five products instead of seven.

A program owns keys, and the gradients of its scores give a part of those of queries,
too. Scores are computed transposed, keys by queries, so that what follows from them is
in the registers from which it is multiplied again. Through shared memory both
warpgroups get the gradients of all scores, and multiply them by the keys, each for half
of the columns. That part leaves the registers for memory while the tensor cores go on
with keys' gradients, and with the scores of the next step. There programs add their
parts up, in float32: in turns, as backward_turns.py has it, or in any order where the
last bits may differ from call to call.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma_wait,
)

from triton_kernels.attention.backward_parts import (
    hide_unseeing_of_keys,
    load_step,
    need_no_mask,
    start_part,
)
from triton_kernels.attention.backward_rings import (
    load_own_rows,
    make_row_stages,
    matrix_at,
    store_gradient,
    zero_in_loop,
)
from triton_kernels.attention.backward_sums import BOX_SIZE, add_to_sums, sums_at
from triton_kernels.attention.backward_turns import (
    ask_for_turns,
    end_turn,
    make_turn,
    pass_turns_on,
    wait_for_turn,
)
from triton_kernels.attention.products import add_scores, start_scores, start_values
from triton_kernels.attention.ring import (
    make_barriers,
    make_ring,
    make_stages,
    release,
    wait_until_full,
)
from triton_kernels.attention.tile_order import are_seen, key_tile_at, step_behind
from triton_kernels.common.math import LOG2_E


@gluon.jit
def add_step(
    scores, grad_k, grad_v, no_part, shared, n_used, row, key, sizes, window, scale_log2
):
    """From a step's scores to its part; the last sum is started only."""
    k_boxes, v_boxes, grad_scores_tile, rings, _ = shared
    q_ring, grad_ring, lse_stages, delta_stages = rings
    BLOCK_N: gl.constexpr = scores.shape[0]
    BLOCK_M: gl.constexpr = scores.shape[1]
    COLS: gl.constexpr = gl.SliceLayout(0, scores.type.layout)
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, grad_k.type.layout, 2)
    stage, zero = n_used % lse_stages.shape[0], zero_in_loop(n_used)
    k, v = matrix_at(k_boxes, zero), matrix_at(v_boxes, zero)
    q = matrix_at(q_ring[0], stage)
    grad = wait_until_full(grad_ring, n_used)
    # The product is summed up from minus delta on, which saves registers.
    delta = delta_stages.index(stage).load(COLS)
    grad_p = add_scores(gl.zeros_like(scores) - delta[None, :], v, grad)
    if not need_no_mask(row, BLOCK_M, key, BLOCK_N, sizes, window):
        scores = hide_unseeing_of_keys(scores, row, key + zero, sizes, window)
    lse = lse_stages.index(stage).load(COLS)
    p = gl.exp2(scores * scale_log2 - lse[None, :])
    operand = gl.convert_layout(p.to(v.dtype), OPERAND)
    grad_v = start_values(grad_v, operand, grad)
    # One product goes on, the last that was started.
    grad_p = warpgroup_mma_wait(1, deps=(grad_p,))
    grad_scores = (p * grad_p).to(v.dtype)
    operand = gl.convert_layout(grad_scores, OPERAND)
    grad_scores_tile.store(grad_scores)
    fence_async_shared()
    part = start_part(grad_scores_tile, k, no_part)
    grad_k = start_values(grad_k, operand, q)
    part = warpgroup_mma_wait(1, deps=(part,))
    return part, grad_k, grad_v


@gluon.jit
def sum_up(
    sums_ptr, shared, key, first_row, n_steps, n_sharing, sizes, window, scale_log2
):
    """The sums over the queries that see the keys, of all heads that share these.

    sums_ptr: of the first of these heads.
    """
    k_boxes, _, _, rings, turn = shared
    q_ring, grad_ring, _, _ = rings
    BLOCK_N: gl.constexpr = k_boxes.shape[2]
    HEAD_DIM: gl.constexpr = k_boxes.shape[4]
    BLOCK_M: gl.constexpr = q_ring[0].shape[2]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, BLOCK_M, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, HEAD_DIM, 16])
    # A warpgroup has half of the columns of a part.
    COLS: gl.constexpr = HEAD_DIM // 2
    PART: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, COLS, 16])
    no_scores = gl.zeros([BLOCK_N, BLOCK_M], gl.float32, SCORES)
    no_part = gl.zeros([BLOCK_M, HEAD_DIM], gl.float32, PART)
    grad_k = gl.zeros([BLOCK_N, HEAD_DIM], gl.float32, SUMS)
    grad_v = gl.zeros([BLOCK_N, HEAD_DIM], gl.float32, SUMS)

    # -- compute: a step's last sum together with the next step's scores
    n_sums = gl.cdiv(sizes[2], BLOCK_M)
    n_all = gl.where(are_seen(key, BLOCK_N, sizes, window), n_sharing * n_steps, 0)
    head, row = gl.to_tensor(0), first_row + (n_steps - 1) * BLOCK_M
    k, q = matrix_at(k_boxes, 0), wait_until_full(q_ring, 0)
    scores = warpgroup_mma_wait(0, deps=(start_scores(k, q, no_scores),))
    for n_used in range(n_all):
        part, grad_k, grad_v = add_step(
            *(scores, grad_k, grad_v, no_part, shared, n_used),
            *(row, key, sizes, window, scale_log2),
        )
        # Behind the last step its scores are computed once more, for nobody.
        q = wait_until_full(q_ring, gl.minimum(n_used + 1, n_all - 1))
        k = matrix_at(k_boxes, zero_in_loop(n_used))
        scores = start_scores(k, q, no_scores)
        wait_for_turn(turn, n_used)
        add_to_sums(sums_ptr, head * n_sums + row // BLOCK_M, part)
        end_turn(turn)
        scores, grad_k, grad_v = warpgroup_mma_wait(0, deps=(scores, grad_k, grad_v))
        release(q_ring, n_used)
        release(grad_ring, n_used)
        head, row = step_behind(head, row, BLOCK_M, n_sharing)
    if n_all == 0:  # nobody sees the keys; what has been loaded is to be there
        wait_until_full(grad_ring, 0)
    return grad_k, grad_v


@gluon.jit
def consume(sums_ptr, shared, own_full, maps, sizes, n_kv_heads, order, scale):
    """What the warps do that multiply."""
    k_boxes, v_boxes, _, rings, _ = shared
    grad_k_map, grad_v_map = maps
    _, n_heads, n_queries, _ = sizes
    BLOCK_N: gl.constexpr = k_boxes.shape[2]
    HEAD_DIM: gl.constexpr = k_boxes.shape[4]
    BLOCK_M: gl.constexpr = rings[0][0].shape[2]
    # -- tile: a program owns BLOCK_N keys of a head
    batch, kv_head, key, first_row, n_steps = key_tile_at(
        gl.program_id(0), sizes, n_kv_heads, *order, BLOCK_M, BLOCK_N
    )
    n_sharing = n_heads // n_kv_heads
    first_head = batch * n_heads + kv_head * n_sharing
    first_sums = first_head * gl.cdiv(n_queries, BLOCK_M)
    mbarrier.wait(own_full.index(0), 0)
    grad_k, grad_v = sum_up(
        *(sums_at(sums_ptr, first_sums, HEAD_DIM), shared),
        *(key, first_row, n_steps, n_sharing, sizes, order[1], scale * LOG2_E),
    )

    # -- store: where the keys and values were, which all products have read by now
    store_gradient(grad_k_map, k_boxes.index(0), key, kv_head, batch, grad_k * scale)
    store_gradient(grad_v_map, v_boxes.index(0), key, kv_head, batch, grad_v)
    tma.store_wait(0)


@gluon.jit
def load(sums_ptr, shared, own_full, own_maps, maps, sizes, n_kv_heads, order):
    """What the loading warp does, from the last queries back to the first."""
    k_boxes, v_boxes, _, rings, _ = shared
    _, n_heads, n_queries, _ = sizes
    BLOCK_N: gl.constexpr = k_boxes.shape[2]
    BLOCK_M: gl.constexpr = rings[0][0].shape[2]
    batch, kv_head, key, first_row, n_steps = key_tile_at(
        gl.program_id(0), sizes, n_kv_heads, *order, BLOCK_M, BLOCK_N
    )
    load_own_rows(k_boxes, v_boxes, *own_maps, key, kv_head, batch, own_full)
    n_sharing = n_heads // n_kv_heads
    first_head = batch * n_heads + kv_head * n_sharing
    head, row = gl.to_tensor(0), first_row + (n_steps - 1) * BLOCK_M
    n_loads = gl.where(are_seen(key, BLOCK_N, sizes, order[1]), n_sharing * n_steps, 1)
    for n_loaded in range(n_loads):
        index = (first_head + head) * gl.cdiv(n_queries, BLOCK_M) + row // BLOCK_M
        load_step(
            *(rings, maps, sums_ptr, index, n_loaded),
            *(row, kv_head * n_sharing + head, batch),
        )
        head, row = step_behind(head, row, BLOCK_M, n_sharing)


@gluon.jit
def attention_backward_kernel(
    sums_ptr,  # (n_batches, n_heads, n_sums), as in backward_sums.py
    grad_k_map,  # (n_batches, n_keys, n_kv_heads, head_dim)
    grad_v_map,  # of grad_k's shape
    grad_map,  # (n_batches, n_queries, n_heads, head_dim)
    q_map,  # of grad's shape
    k_map,  # of grad_k's shape
    v_map,  # of grad_k's shape
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
    TAKES_TURNS: gl.constexpr,
):
    # -- tile: a program owns BLOCK_N keys of a head
    BLOCK_M: gl.constexpr = q_map.block_type.shape[1]
    BLOCK_N: gl.constexpr = k_map.block_type.shape[1]
    gl.static_assert(BLOCK_M == BOX_SIZE)
    sizes = n_batches, n_heads, n_queries, n_keys
    order = heads_per_section, (window_left, window_right)

    # -- load: by one warp
    rings = (
        make_ring(q_map, NUM_STAGES, 1),
        make_ring(grad_map, NUM_STAGES, 1),
        make_row_stages(NUM_STAGES, BLOCK_M),
        make_row_stages(NUM_STAGES, BLOCK_M),
    )
    TILE: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    grad_scores_tile = gl.allocate_shared_memory(q_map.dtype, [BLOCK_N, BLOCK_M], TILE)
    k_boxes, v_boxes = make_stages(k_map, 1), make_stages(v_map, 1)
    shared = k_boxes, v_boxes, grad_scores_tile, rings, make_turn(TAKES_TURNS)
    own_full = make_barriers(1, 1)
    fence_async_shared()
    maps, own_maps = (q_map, grad_map), (k_map, v_map)
    loader = sums_ptr, shared, own_full, own_maps, maps, sizes, n_kv_heads, order

    # -- compute: a step's last sum together with the next step's scores
    # -- store: where the keys and values were, which all products have read by now
    grad_maps = grad_k_map, grad_v_map
    consumer = sums_ptr, shared, own_full, grad_maps, sizes, n_kv_heads, order, scale
    turns = sums_ptr, shared, sizes, n_kv_heads, order
    gl.warp_specialize(
        [
            (consume, consumer),
            (load, loader),
            (ask_for_turns, turns),
            (pass_turns_on, turns),
        ],
        *([1, 1, 1], [24, 24, 24]),
    )
