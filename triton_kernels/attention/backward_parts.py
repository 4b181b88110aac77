"""What a step of attention_backward_kernel, in backward_twin.py, is made of.

That is gradients of scores, and the parts of queries' gradients that come of them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from triton_kernels.attention.backward_rings import zero_in_loop
from triton_kernels.attention.backward_sums import statistics_at
from triton_kernels.attention.products import add_scores, start_values
from triton_kernels.attention.ring import load_stage, matrix_at, wait_until_full
from triton_kernels.attention.scores import seeing_queries
from triton_kernels.attention.softmax import hide_outside
from triton_kernels.attention.tile_order import queries_of_all_keys
from triton_kernels.common.ring import make_barriers, wait_until_empty

# Of so many steps there are gradients of scores: a warpgroup stores those of one as
# soon as the other has stored those of the last one, and may still multiply those of
# the last but one.
NUM_SCORE_STEPS = gl.constexpr(3)


@gluon.jit
def load_step(rings, maps, sums_ptr, index, count, row, head, batch):
    """Starts to load queries and gradients of a head; the warp reads their statistics.

    index: of the first 64 of them in sums_ptr.
    """
    q_ring, grad_ring, lse_stages, delta_stages = rings
    q_map, grad_map = maps
    LAYOUT: gl.constexpr = gl.BlockedLayout([2], [32], [1], [0])
    BLOCK_M: gl.constexpr = lse_stages.shape[1]
    HEAD_DIM: gl.constexpr = q_map.block_type.shape[3]
    lse_ptr, delta_ptr = statistics_at(sums_ptr, index, HEAD_DIM)
    rows = gl.arange(0, BLOCK_M, LAYOUT)
    lse, delta = gl.load(lse_ptr + rows), gl.load(delta_ptr + rows)
    stage = count % lse_stages.shape[0]
    wait_until_empty(q_ring, count)
    lse_stages.index(stage).store(lse)
    delta_stages.index(stage).store(delta)
    load_stage(q_ring, count, q_map, row, head, batch)
    load_stage(grad_ring, count, grad_map, row, head, batch)


@gluon.jit
def need_no_mask(row, BLOCK_M: gl.constexpr, key, BLOCK_N: gl.constexpr, sizes, window):
    """Whether BLOCK_M queries see all of BLOCK_N keys, and these are keys."""
    seeing_from, seeing_to = queries_of_all_keys(key, BLOCK_N, sizes, window)
    is_seen = (row >= seeing_from) & (row + BLOCK_M <= seeing_to)
    return is_seen & (key + BLOCK_N <= sizes[3])


@gluon.jit
def hide_unseeing_of_keys(scores, row, key, sizes, window):
    """Hides the scores of the queries, from `row` on, that do not see keys.

    None sees a key behind the last one, which would be multiplied by 0, as its score is
    of zeros and may be huge.
    """
    ROWS: gl.constexpr = gl.SliceLayout(1, scores.type.layout)
    keys = key + gl.arange(0, scores.shape[0], ROWS)
    first, end = seeing_queries(keys, sizes[2], sizes[3], window[0], window[1])
    return hide_outside(scores, first, gl.where(keys < sizes[3], end, 0), row)


@gluon.jit
def make_exchange(map, NUM_CONSUMERS: gl.constexpr):
    """What warpgroups tell each other: gradients of scores, in boxes.

    `full` tells of a step's that all have stored theirs, and `is_ahead` that the first
    warpgroup has begun, half a step before the other.
    """
    BOX_SIZE: gl.constexpr = map.block_type.shape[1]
    N: gl.constexpr = NUM_SCORE_STEPS * NUM_CONSUMERS
    BOX: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    boxes = gl.allocate_shared_memory(map.dtype, [N, BOX_SIZE, BOX_SIZE], BOX)
    # The first step multiplies zeros instead of the last step's: nobody adds that part.
    ROWS: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    for i in gl.static_range(N - NUM_CONSUMERS, N):
        boxes.index(i).store(gl.zeros([BOX_SIZE, BOX_SIZE], map.dtype, ROWS))
    full = make_barriers(NUM_SCORE_STEPS, NUM_CONSUMERS)
    return boxes, full, make_barriers(1, 1)


@gluon.jit
def wait_for_last_scores(exchange, count):
    """Until all have stored those of step count - 1; nobody waits for step -1.

    Who has stored those has multiplied those of step count - 3, whose place is free
    then.
    """
    _, full, _ = exchange
    place = count + NUM_SCORE_STEPS - 1  # as of the step that comes around to it
    mbarrier.wait(full.index(place % NUM_SCORE_STEPS), place // NUM_SCORE_STEPS & 1 ^ 1)


@gluon.jit
def store_scores(exchange, count, grad_scores, W: gl.constexpr):
    """Stores the W-th warpgroup's gradients of scores of step `count`."""
    boxes, full, _ = exchange
    N: gl.constexpr = boxes.shape[0] // NUM_SCORE_STEPS
    place = count % NUM_SCORE_STEPS
    boxes.index(place * N + W).store(grad_scores)
    fence_async_shared()
    mbarrier.arrive(full.index(place), count=1)


@gluon.jit
def start_last_part(exchange, count, k_boxes, zero, W: gl.constexpr):
    """Part = grad_scores (keys x queries) transposed times k, both in shared memory.

    It is of step count - 1, and the W-th warpgroup's half of the columns.
    """
    boxes, _, _ = exchange
    BOX_SIZE: gl.constexpr = boxes.shape[1]
    N: gl.constexpr = k_boxes.shape[0]
    COLS: gl.constexpr = k_boxes.shape[4] // N
    FIRST_COL: gl.constexpr = W * COLS
    PART: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLS, 16])
    part = gl.zeros([BOX_SIZE, COLS], gl.float32, PART)
    place = (count + NUM_SCORE_STEPS - 1) % NUM_SCORE_STEPS
    for i in gl.static_range(N):
        grad_scores = boxes.index(place * N + i).permute((1, 0))
        k = matrix_at(k_boxes, i + zero).slice(FIRST_COL, COLS, dim=1)
        part = warpgroup_mma(grad_scores, k, part, use_acc=i > 0, is_async=True)
    return part


@gluon.jit
def add_step(
    scores,
    grad_k,
    grad_v,
    shared,
    n_used,
    row,
    key,
    sizes,
    window,
    scale_log2,
    W: gl.constexpr,
):
    """From a step's scores to its last sum, which is started only, and the last part.

    row: the first of the step's queries; key: of the warpgroup's keys.
    """
    k_boxes, v_boxes, exchange, rings, _ = shared
    _, _, is_ahead = exchange
    q_ring, grad_ring, lse_stages, delta_stages = rings
    BOX_SIZE: gl.constexpr = scores.shape[0]
    BLOCK_M: gl.constexpr = scores.shape[1]
    COLS: gl.constexpr = gl.SliceLayout(0, scores.type.layout)
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, grad_k.type.layout, 2)
    stage, zero = n_used % lse_stages.shape[0], zero_in_loop(n_used)
    v, q = matrix_at(v_boxes, W + zero), matrix_at(q_ring[0], stage)
    grad = wait_until_full(grad_ring, n_used)
    # The product is summed up from minus delta on, which saves registers.
    delta = delta_stages.index(stage).load(COLS)
    grad_p = add_scores(gl.zeros_like(scores) - delta[None, :], v, grad)
    if not need_no_mask(row, BLOCK_M, key, BOX_SIZE, sizes, window):
        scores = hide_unseeing_of_keys(scores, row, key + zero, sizes, window)
    lse = lse_stages.index(stage).load(COLS)
    p = gl.exp2(scores * scale_log2 - lse[None, :])
    operand = gl.convert_layout(p.to(v.dtype), OPERAND)
    if W == 0 and n_used == 0:
        mbarrier.arrive(is_ahead.index(0), count=1)
    grad_v = start_values(grad_v, operand, grad)
    # One product goes on, the last that was started.
    grad_p = warpgroup_mma_wait(1, deps=(grad_p,))
    grad_scores = (p * grad_p).to(v.dtype)
    operand = gl.convert_layout(grad_scores, OPERAND)
    # The other has long stored those of the last step, as its part is multiplied now.
    wait_for_last_scores(exchange, n_used)
    store_scores(exchange, n_used, grad_scores, W)
    part = start_last_part(exchange, n_used, k_boxes, zero, W)
    grad_k = start_values(grad_k, operand, q)
    part, grad_v = warpgroup_mma_wait(1, deps=(part, grad_v))
    return part, grad_k, grad_v
