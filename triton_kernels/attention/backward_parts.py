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

from triton_kernels.attention.backward_rings import make_row_stages, zero_in_loop
from triton_kernels.attention.backward_sums import BOX_SIZE, load_statistics
from triton_kernels.attention.products import add_scores, start_scores, start_values
from triton_kernels.attention.ring import make_stages, matrix_at
from triton_kernels.attention.scores import seeing_queries
from triton_kernels.attention.softmax import hide_outside
from triton_kernels.attention.tile_order import queries_of_all_keys
from triton_kernels.common.gluon_names import tma_load
from triton_kernels.common.ring import make_barriers

# Of so many steps there are gradients of scores: a warpgroup stores those of one as
# soon as the other has stored those of the last one, and may still multiply those of
# the last but one.
NUM_SCORE_STEPS = gl.constexpr(3)


@gluon.jit
def make_steps(q_map, grad_map, N: gl.constexpr):
    """Shared memory for what is loaded of N steps; `full` tells that a step has come.

    A step has BLOCK_M queries, gradients of their rows of out, and statistics of these.
    """
    BLOCK_M: gl.constexpr = q_map.block_type.shape[1]
    lse, delta = make_row_stages(N, BLOCK_M), make_row_stages(N, BLOCK_M)
    full = make_barriers(N, 1)
    return make_stages(q_map, N), make_stages(grad_map, N), lse, delta, full


@gluon.jit
def wait_for_step(steps, count):
    """Until all of step `count` has come."""
    _, _, _, _, full = steps
    mbarrier.wait(full.index(count % full.shape[0]), count // full.shape[0] & 1)


@gluon.jit
def load_step(steps, exchange, maps, sums_ptr, index, count, row, head, batch):
    """Starts to load queries and gradients of a head; the warp reads their statistics.

    index: of the first 64 of them in sums_ptr. The place of a step is free when both
    warpgroups have scores of the one behind it: all products of the step are over then.
    Of three places it is soon enough to wait until they have stored the gradients of
    these scores, of which one barrier tells.
    """
    queries, grads, lse_stages, delta_stages, full = steps
    q_map, grad_map = maps
    N: gl.constexpr = full.shape[0]
    gl.static_assert(N <= NUM_SCORE_STEPS + 1)  # else phases of a barrier may be missed
    BLOCK_M: gl.constexpr = lse_stages.shape[1]
    HEAD_DIM: gl.constexpr = q_map.block_type.shape[3]
    lse, delta = load_statistics(sums_ptr, index, BLOCK_M, HEAD_DIM)
    stage = count % N
    if N > 2:
        if count >= N:
            wait_for_last_scores(exchange, count - N + 2)
    elif count > 0:  # for those of the first step, too, so that no phase is missed
        _, _, may_multiply = exchange
        mbarrier.wait(may_multiply.index(0), count & 1 ^ 1)
        mbarrier.wait(may_multiply.index(1), count & 1 ^ 1)
    lse_stages.index(stage).store(lse)
    delta_stages.index(stage).store(delta)
    mbarrier.expect(full.index(stage), q_map.block_type.nbytes * 2)
    place = [batch, row, head, 0]
    tma_load(q_map, place, full.index(stage), queries.index(stage))
    tma_load(grad_map, place, full.index(stage), grads.index(stage))


@gluon.jit
def need_no_mask(row, BLOCK_M: gl.constexpr, key, BLOCK_N: gl.constexpr, sizes, window):
    """Whether BLOCK_M queries see all of BLOCK_N keys, and these are keys."""
    seeing_from, seeing_to = queries_of_all_keys(key, BLOCK_N, sizes, window)
    is_seen = (row >= seeing_from) & (row + BLOCK_M <= seeing_to)
    return is_seen & (key + BLOCK_N <= sizes[3])


@gluon.jit
def hide_unseeing_of_keys(scores, row, key, sizes, window):
    """Hides the scores of the queries, from `row` on, that do not see keys.

    None sees a key behind the last one: its score is 0, exp(0 - lse) may be infinite,
    and NaN times its row of zeros.
    """
    ROWS: gl.constexpr = gl.SliceLayout(1, scores.type.layout)
    keys = key + gl.arange(0, scores.shape[0], ROWS)
    first, end = seeing_queries(keys, sizes[2], sizes[3], window[0], window[1])
    return hide_outside(scores, first, gl.where(keys < sizes[3], end, 0), row)


@gluon.jit
def make_exchange(map, NUM_CONSUMERS: gl.constexpr):
    """What warpgroups tell each other: gradients of scores, in boxes.

    `full` tells of a step's that all have stored theirs, `may_multiply` a warpgroup
    that the other's scores are there, and it may start products of its own. Where steps
    have two places, the loading warp learns from both that one is free.
    """
    BLOCK_M: gl.constexpr = map.block_type.shape[1]
    N: gl.constexpr = NUM_SCORE_STEPS * NUM_CONSUMERS
    BOX: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    boxes = gl.allocate_shared_memory(map.dtype, [N, BOX_SIZE, BLOCK_M], BOX)
    # The first step multiplies zeros instead of the last step's: nobody adds that part.
    ROWS: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    for i in gl.static_range(N - NUM_CONSUMERS, N):
        boxes.index(i).store(gl.zeros([BOX_SIZE, BLOCK_M], map.dtype, ROWS))
    full = make_barriers(NUM_SCORE_STEPS, NUM_CONSUMERS)
    return boxes, full, make_barriers(NUM_CONSUMERS, 1)


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

    It is of step count - 1, and the W-th warpgroup's 64 queries and 64 columns.
    """
    boxes, _, _ = exchange
    N: gl.constexpr = k_boxes.shape[0]
    COL_BOXES: gl.constexpr = k_boxes.shape[4] // BOX_SIZE
    gl.static_assert(boxes.shape[2] // BOX_SIZE * COL_BOXES == N)
    ROW: gl.constexpr = W // COL_BOXES * BOX_SIZE
    COL: gl.constexpr = W % COL_BOXES * BOX_SIZE
    PART: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BOX_SIZE, 16])
    part = gl.zeros([BOX_SIZE, BOX_SIZE], gl.float32, PART)
    place = (count + NUM_SCORE_STEPS - 1) % NUM_SCORE_STEPS
    for i in gl.static_range(N):
        grad_scores = boxes.index(place * N + i).slice(ROW, BOX_SIZE, dim=1)
        k = matrix_at(k_boxes, i + zero).slice(COL, BOX_SIZE, dim=1)
        part = warpgroup_mma(
            grad_scores.permute((1, 0)), k, part, use_acc=i > 0, is_async=True
        )
    return part


@gluon.jit
def start_step_scores(no_scores, shared, count, W: gl.constexpr):
    """Starts scores of step `count`, once its queries are there."""
    k_boxes, _, _, steps, _ = shared
    wait_for_step(steps, count)
    q = matrix_at(steps[0], count % steps[0].shape[0])
    return start_scores(matrix_at(k_boxes, W + zero_in_loop(count)), q, no_scores)


@gluon.jit
def begin_step(
    no_scores,
    scores,
    grad_k,
    grad_v,
    shared,
    count,
    row,
    key,
    sizes,
    window,
    scale_log2,
    W: gl.constexpr,
):
    """From scores of step `count` to their gradients, and the sum of its grad_v.

    scores, grad_k: which have been started. row: the first of the step's queries; key:
    of the warpgroup's keys.
    """
    _, v_boxes, exchange, steps, _ = shared
    _, _, may_multiply = exchange
    _, grads, lse_stages, delta_stages, _ = steps
    BLOCK_M: gl.constexpr = lse_stages.shape[1]
    COLS: gl.constexpr = gl.SliceLayout(0, no_scores.type.layout)
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, grad_v.type.layout, 2)
    stage, zero = count % grads.shape[0], zero_in_loop(count)
    v, grad = matrix_at(v_boxes, W + zero), matrix_at(grads, stage)
    if BLOCK_M == BOX_SIZE:  # the product is added to minus delta: saves registers
        delta = delta_stages.index(stage).load(COLS)
        grad_p = add_scores(no_scores - delta[None, :], v, grad)
    else:  # so many differences would delay the start of the product
        grad_p = start_scores(v, grad, no_scores)
    scores, grad_k = warpgroup_mma_wait(1, deps=(scores, grad_k))
    mbarrier.arrive(may_multiply.index(1 - W), count=1)
    if not need_no_mask(row, BLOCK_M, key, BOX_SIZE, sizes, window):
        scores = hide_unseeing_of_keys(scores, row, key + zero, sizes, window)
    lse = lse_stages.index(stage).load(COLS)
    p = gl.exp2(scores * scale_log2 - lse[None, :])
    operand = gl.convert_layout(p.to(grad.dtype), OPERAND)
    grad_v = start_values(grad_v, operand, grad)
    grad_p = warpgroup_mma_wait(1, deps=(grad_p,))
    if BLOCK_M > BOX_SIZE:
        grad_p -= delta_stages.index(stage).load(COLS)[None, :]
    grad_scores = (p * grad_p).to(grad.dtype)
    return grad_scores, grad_k, warpgroup_mma_wait(0, deps=(grad_v,))


@gluon.jit
def end_step(
    grad_scores, grad_k, shared, count, W: gl.constexpr, IS_LAST: gl.constexpr = False
):
    """The part of the step before, and the sum of grad_k, which is started only.

    The warpgroup waits for the other's scores: the first one for those of step `count`,
    the second for those of the next, of which there are none behind the last.
    """
    k_boxes, _, exchange, steps, _ = shared
    _, _, may_multiply = exchange
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, grad_k.type.layout, 2)
    q = matrix_at(steps[0], count % steps[0].shape[0])
    # The other has long stored those of the last step, as its part is multiplied now.
    wait_for_last_scores(exchange, count)
    store_scores(exchange, count, grad_scores, W)
    if W == 0 or not IS_LAST:
        mbarrier.wait(may_multiply.index(W), (count + W) & 1)
    part = start_last_part(exchange, count, k_boxes, zero_in_loop(count), W)
    grad_k = start_values(grad_k, gl.convert_layout(grad_scores, OPERAND), q)
    part = warpgroup_mma_wait(1, deps=(part,))
    return part, grad_k
