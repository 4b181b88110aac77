"""The twin: all gradients at once, which is five products instead of seven.

A program owns keys; gradients of its scores give a part of those of queries, too.
Scores are transposed: what follows from them is in registers that are multiplied again.
Each warpgroup has 64 of the keys. They multiply one after the other, so that one
computes exponentials while the tensor cores multiply for the other; left to their own
pace, both would come to compute them at the same time. Through shared memory both get
the gradients of all scores, a step later, when both have stored them, and multiply
those by the keys, each for 64 queries and 64 columns. This part leaves the registers
for memory while the tensor cores go on with keys' gradients. There programs add their
parts up, in float32: in turns, as backward_turns.py has it, or in any order where the
last bits may differ.
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
    begin_step,
    end_step,
    load_step,
    make_exchange,
    make_steps,
    start_last_part,
    start_step_scores,
    wait_for_last_scores,
    wait_for_step,
)
from triton_kernels.attention.backward_rings import (
    load_own_rows,
    store_gradient,
    wait_for_each_other,
)
from triton_kernels.attention.backward_sums import BOX_SIZE, count_sums, sums_at
from triton_kernels.attention.backward_turns import (
    add_in_turn,
    ask_for_turns,
    make_turn,
    pass_turns_on,
)
from triton_kernels.attention.ring import make_stages
from triton_kernels.attention.tile_order import (
    are_seen,
    first_step,
    key_tile_at,
    step_behind,
)
from triton_kernels.common.math import LOG2_E
from triton_kernels.common.ring import make_barriers


@gluon.jit
def sum_up(
    sums_ptr,
    shared,
    first_key,
    row,
    row_step,
    n_steps,
    n_sharing,
    sizes,
    window,
    scale_log2,
    W: gl.constexpr,
):
    """A warpgroup's sums over the queries that see keys, of all heads that share these.

    sums_ptr: of the first of these heads.
    first_key: of the program; row: of its first step, and row_step leads to the next.
    """
    k_boxes, _, exchange, steps, turn = shared
    _, _, may_multiply = exchange
    BLOCK_N: gl.constexpr = k_boxes.shape[0] * BOX_SIZE
    HEAD_DIM: gl.constexpr = k_boxes.shape[4]
    BLOCK_M: gl.constexpr = steps[0].shape[2]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    no_scores = gl.zeros([BOX_SIZE, BLOCK_M], gl.float32, SCORES)
    grad_k = gl.zeros([BOX_SIZE, HEAD_DIM], gl.float32, SUMS)
    grad_v = gl.zeros([BOX_SIZE, HEAD_DIM], gl.float32, SUMS)

    # -- compute: exponentials while the tensor cores multiply for the other warpgroup;
    # the part of a step in the next one
    n_sums = count_sums(sizes[2], BLOCK_M)
    key = first_key + W * BOX_SIZE
    if are_seen(first_key, BLOCK_N, sizes, window):
        n_all = n_sharing * n_steps
        if W == 1:
            mbarrier.wait(may_multiply.index(W), 0)
        scores = start_step_scores(no_scores, shared, 0, W)
        # Else the compiler waits by itself, as scores come from outside of the loop.
        first_scores = warpgroup_mma_wait(0, deps=(scores,))
        grad_scores, grad_k, grad_v = begin_step(
            *(no_scores, first_scores, grad_k, grad_v, shared, 0),
            *(row, key, sizes, window, scale_log2, W),
        )
        head, last_index = gl.to_tensor(0), gl.to_tensor(0)
        for n_used in range(1, n_all):
            # The end of the step before, and this one up to gradients of its scores. So
            # no product goes on into the next turn of the loop: it would be serialized.
            part, grad_k = end_step(grad_scores, grad_k, shared, n_used - 1, W)
            if BLOCK_M == BOX_SIZE:
                scores = start_step_scores(no_scores, shared, n_used, W)
            if n_used > 1:
                add_in_turn(turn, n_used - 2, sums_ptr, last_index, part, HEAD_DIM, W)
            if BLOCK_M > BOX_SIZE:  # scores need the registers of their gradients
                grad_k = warpgroup_mma_wait(0, deps=(grad_k,))
                scores = start_step_scores(no_scores, shared, n_used, W)
            last_index = head * n_sums + row // BOX_SIZE
            head, row = step_behind(head, row, row_step, n_sharing)
            grad_scores, grad_k, grad_v = begin_step(
                *(no_scores, scores, grad_k, grad_v, shared, n_used),
                *(row, key, sizes, window, scale_log2, W),
            )
        part, grad_k = end_step(grad_scores, grad_k, shared, n_all - 1, W, IS_LAST=True)
        if n_all > 1:
            add_in_turn(turn, n_all - 2, sums_ptr, last_index, part, HEAD_DIM, W)
        last_index = head * n_sums + row // BOX_SIZE
        wait_for_last_scores(exchange, n_all)
        part = start_last_part(exchange, n_all, k_boxes, 0, W)
        part, grad_k = warpgroup_mma_wait(0, deps=(part, grad_k))
        add_in_turn(turn, n_all - 1, sums_ptr, last_index, part, HEAD_DIM, W)
    else:  # what has been loaded is to be there
        wait_for_step(steps, 0)
    return grad_k, grad_v


@gluon.jit
def consume(sums_ptr, shared, own, maps, call, W: gl.constexpr):
    """What the W-th of the warpgroups does that multiply."""
    k_boxes, v_boxes, _, steps, _ = shared
    own_full, own_read = own
    grad_k_map, grad_v_map = maps
    sizes, n_kv_heads, order, scale = call
    _, n_heads, n_queries, _ = sizes
    BLOCK_N: gl.constexpr = k_boxes.shape[0] * BOX_SIZE
    HEAD_DIM: gl.constexpr = k_boxes.shape[4]
    BLOCK_M: gl.constexpr = steps[0].shape[2]
    # -- tile: a program owns BLOCK_N keys of a head
    batch, kv_head, key, first_row, n_steps, is_from_last = key_tile_at(
        gl.program_id(0), sizes, n_kv_heads, *order, BLOCK_M, BLOCK_N
    )
    row, row_step = first_step(first_row, n_steps, is_from_last, BLOCK_M)
    n_sharing = n_heads // n_kv_heads
    first_head = batch * n_heads + kv_head * n_sharing
    first_sums = first_head * count_sums(n_queries, BLOCK_M)
    mbarrier.wait(own_full.index(0), 0)
    grad_k, grad_v = sum_up(
        *(sums_at(sums_ptr, first_sums, HEAD_DIM), shared, key, row, row_step),
        *(n_steps, n_sharing, sizes, order[1], scale * LOG2_E, W),
    )

    # -- store: where the keys and values were, once all products have read them
    wait_for_each_other(own_read)
    key += W * BOX_SIZE
    store_gradient(grad_k_map, k_boxes.index(W), key, kv_head, batch, grad_k * scale)
    store_gradient(grad_v_map, v_boxes.index(W), key, kv_head, batch, grad_v)
    tma.store_wait(0)


@gluon.jit
def load(sums_ptr, shared, own, own_maps, maps, sizes, n_kv_heads, order):
    """What the loading warp does."""
    k_boxes, v_boxes, exchange, steps, _ = shared
    _, n_heads, n_queries, _ = sizes
    BLOCK_N: gl.constexpr = k_boxes.shape[0] * k_boxes.shape[2]
    BLOCK_M: gl.constexpr = steps[0].shape[2]
    batch, kv_head, key, first_row, n_steps, is_from_last = key_tile_at(
        gl.program_id(0), sizes, n_kv_heads, *order, BLOCK_M, BLOCK_N
    )
    load_own_rows(k_boxes, v_boxes, *own_maps, key, kv_head, batch, own[0])
    n_sharing = n_heads // n_kv_heads
    first_head = batch * n_heads + kv_head * n_sharing
    row, row_step = first_step(first_row, n_steps, is_from_last, BLOCK_M)
    head = gl.to_tensor(0)
    n_loads = gl.where(are_seen(key, BLOCK_N, sizes, order[1]), n_sharing * n_steps, 1)
    for n_loaded in range(n_loads):
        index = (first_head + head) * count_sums(n_queries, BLOCK_M) + row // BOX_SIZE
        load_step(
            *(steps, exchange, maps, sums_ptr, index, n_loaded),
            *(row, kv_head * n_sharing + head, batch),
        )
        head, row = step_behind(head, row, row_step, n_sharing)


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
    n_from_last,
    scale,
    window_left,
    window_right,
    NUM_STAGES: gl.constexpr,
    TAKES_TURNS: gl.constexpr,
):
    # -- tile: a program owns 64 keys of a head for each warpgroup
    sizes = n_batches, n_heads, n_queries, n_keys
    order = (heads_per_section, n_from_last), (window_left, window_right)

    # -- load: by one warp
    NUM_CONSUMERS: gl.constexpr = 2
    steps = make_steps(q_map, grad_map, NUM_STAGES)
    k_boxes = make_stages(k_map, NUM_CONSUMERS)
    v_boxes = make_stages(v_map, NUM_CONSUMERS)
    exchange = make_exchange(q_map, NUM_CONSUMERS)
    shared = k_boxes, v_boxes, exchange, steps, make_turn(TAKES_TURNS, NUM_CONSUMERS)
    own = make_barriers(1, 1), make_barriers(1, NUM_CONSUMERS)
    fence_async_shared()
    maps, own_maps = (q_map, grad_map), (k_map, v_map)
    loader = sums_ptr, shared, own, own_maps, maps, sizes, n_kv_heads, order

    # -- compute: exponentials while the tensor cores multiply for the other warpgroup;
    # the part of a step in the next one
    # -- store: where the keys and values were, once all products have read them
    grad_maps, call = (grad_k_map, grad_v_map), (sizes, n_kv_heads, order, scale)
    FIRST: gl.constexpr = 0
    SECOND: gl.constexpr = 1
    turns = sums_ptr, shared, sizes, n_kv_heads, order
    gl.warp_specialize(
        [
            (consume, (sums_ptr, shared, own, grad_maps, call, FIRST)),
            (consume, (sums_ptr, shared, own, grad_maps, call, SECOND)),
            (load, loader),
            (ask_for_turns, turns),
            (pass_turns_on, turns),
        ],
        *([4, 1, 1, 1], [240, 24, 24, 24]),
    )
