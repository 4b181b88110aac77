"""What attention_backward_kernel, in backward_twin.py, alone needs in its loops."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma

from triton_kernels.attention.backward_sums import statistics_at
from triton_kernels.attention.ring import load_stage, wait_until_empty
from triton_kernels.attention.scores import seeing_queries
from triton_kernels.attention.softmax import hide_outside
from triton_kernels.attention.tile_order import queries_of_all_keys


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
def start_part(grad_scores, k, no_part):
    """Part = grad_scores (keys x queries) transposed times k, both in shared memory."""
    grad_scores = grad_scores.permute((1, 0))
    return warpgroup_mma(grad_scores, k, no_part, use_acc=False, is_async=True)
