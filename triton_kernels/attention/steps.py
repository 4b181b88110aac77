"""What a warpgroup of the twin does with its rows of a tile of queries, step by step.

A step is one tile of keys and its values. Warpgroups take turns in starting products.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma_wait,
)

from triton_kernels.attention.products import (
    scaled,
    start_scores_of_tile,
    start_values_of_tile,
    wait_for_values,
)
from triton_kernels.attention.ring import wait_until_full
from triton_kernels.attention.row_max import max_with
from triton_kernels.attention.softmax import (
    add_scores,
    hide_unseen,
    sums_of_lanes,
)
from triton_kernels.attention.tile_order import keys_of_all_rows, steps_of_rows
from triton_kernels.common.ring import release


@gluon.jit
def skip_steps(k_ring, v_ring, turns, n_used, end, WARPGROUP: gl.constexpr):
    """Steps, up to `end`, of keys that only other warpgroups' queries see."""
    NEXT: gl.constexpr = (WARPGROUP + 1) % turns.shape[0]
    for used in range(n_used, end):
        mbarrier.wait(turns.index(WARPGROUP), used & 1)
        mbarrier.arrive(turns.index(NEXT), count=1)
        wait_until_full(k_ring, used)
        release(k_ring, used)
        wait_until_full(v_ring, used)
        release(v_ring, used)


@gluon.jit
def attend(
    q_boxes,
    k_ring,
    v_ring,
    turns,
    n_used,
    row,
    last_key,
    n_steps,
    sizes,
    window,
    scale_log2,
    WARPGROUP: gl.constexpr,
    HEAD_DIM: gl.constexpr,
):
    """A warpgroup's steps for a tile of queries: values not divided, and max and sums.

    n_used tiles of keys came before. A turn is passed on along a circle of barriers.
    """
    BLOCK_M: gl.constexpr = q_boxes.shape[2]
    BOX_COLS: gl.constexpr = q_boxes.shape[4]
    BLOCK_N: gl.constexpr = k_ring[0].shape[2]
    NUM_BOXES: gl.constexpr = k_ring[0].shape[0] // k_ring[1].shape[0]
    own_box = WARPGROUP * NUM_BOXES  # the first one
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    OUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BOX_COLS, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, OUT, 2)
    seen_from, seen_to = keys_of_all_rows(row, BLOCK_M, sizes, window)
    NEXT: gl.constexpr = (WARPGROUP + 1) % turns.shape[0]
    no_scores = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, SCORES)
    row_max = gl.full([BLOCK_M], -float("inf"), gl.float32, gl.SliceLayout(1, SCORES))
    row_sums = sums_of_lanes(no_scores)
    out = gl.zeros([BLOCK_M, BOX_COLS], gl.float32, OUT)
    outs = (out,) if NUM_BOXES == 1 else (out, out, out)

    # -- compute: a step's scores together with the last step's values
    # Long rows leave no registers to skip the steps in which none of the queries sees a
    # key, and others take one of them at least.
    end_of_tile = n_used + n_steps
    if HEAD_DIM <= 128:
        first, end = steps_of_rows(
            row, BLOCK_M, last_key, n_steps, sizes, window, BLOCK_N
        )
        first = gl.minimum(first, n_steps - 1)
        skip_steps(k_ring, v_ring, turns, n_used, n_used + first, WARPGROUP)
        last_key -= first * BLOCK_N
        n_used += first
        n_steps = gl.maximum(end - first, 1)
    wait_until_full(k_ring, n_used)
    mbarrier.wait(turns.index(WARPGROUP), n_used & 1)
    scores = start_scores_of_tile(q_boxes, own_box, k_ring, n_used, no_scores, HEAD_DIM)
    mbarrier.arrive(turns.index(NEXT), count=1)
    scores = warpgroup_mma_wait(0, deps=(scores,))
    release(k_ring, n_used)
    if (last_key < seen_from) | (last_key + BLOCK_N > seen_to):
        scores = hide_unseen(scores, row, last_key, sizes, window)
    old_max, row_max = row_max, max_with(scores, row_max, scale_log2)
    p, row_sums, _ = add_scores(scores, old_max, row_max, row_sums, scale_log2)
    p = gl.convert_layout(p.to(q_boxes.dtype), OPERAND)
    WAITS_AHEAD: gl.constexpr = NUM_BOXES == 1  # with sums in three it takes longer
    if WAITS_AHEAD and n_steps > 1:
        wait_until_full(k_ring, n_used + 1)
    for step in range(1, n_steps):
        used = n_used + step
        if not WAITS_AHEAD:
            wait_until_full(k_ring, used)
        mbarrier.wait(turns.index(WARPGROUP), used & 1)
        scores = start_scores_of_tile(
            q_boxes, own_box, k_ring, used, no_scores, HEAD_DIM
        )
        wait_until_full(v_ring, used - 1)
        outs = start_values_of_tile(outs, p, v_ring, used - 1)
        mbarrier.arrive(turns.index(NEXT), count=1)
        scores = warpgroup_mma_wait(NUM_BOXES, deps=(scores,))
        release(k_ring, used)
        key = last_key - step * BLOCK_N
        if (key < seen_from) | (key + BLOCK_N > seen_to):
            scores = hide_unseen(scores, row, key, sizes, window)
        old_max, row_max = row_max, max_with(scores, row_max, scale_log2)
        # Already here: the assembler moves the wait for values up to the last branch,
        # and would not have the maximum computed while their product runs.
        if WAITS_AHEAD and step + 1 < n_steps:
            wait_until_full(k_ring, used + 1)
        exponentials, row_sums, rescale = add_scores(
            scores, old_max, row_max, row_sums, scale_log2
        )
        outs = wait_for_values(outs)
        release(v_ring, used - 1)
        p = gl.convert_layout(exponentials.to(q_boxes.dtype), OPERAND)
        factor = gl.convert_layout(rescale, gl.SliceLayout(1, OUT))[:, None]
        outs = scaled(outs, factor)
    used = n_used + n_steps - 1
    wait_until_full(v_ring, used)
    outs = wait_for_values(start_values_of_tile(outs, p, v_ring, used))
    release(v_ring, used)
    if HEAD_DIM <= 128:
        skip_steps(k_ring, v_ring, turns, used + 1, end_of_tile, WARPGROUP)
    return outs, row_max, gl.convert_layout(gl.sum(row_sums, 1), row_max.type.layout)
