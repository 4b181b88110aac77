"""What the backward's kernels for Hopper have in common.

How their shared memory is filled, and how sums leave registers.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
)

from triton_kernels.attention.ring import load_stage, wait_until_full
from triton_kernels.attention.tile_order import key_tile_at
from triton_kernels.common.gluon_names import tma_load, tma_store
from triton_kernels.common.math import LOG2_E
from triton_kernels.common.ring import release, wait_until_empty


@gluon.jit
def lse_to_log2(lse):
    """What probabilities are computed from: lse in units of log 2.

    A row without keys, and one behind the last, has inf: its exponentials are 0 then,
    those of hidden scores too.
    """
    return gl.where(lse == -float("inf"), float("inf"), lse * LOG2_E)


@gluon.jit
def zero_in_loop(count):
    """0, since a count of steps, or keys, is below 2^30; the compiler does not know.

    What is computed from it is computed in each step, instead of once for all, and
    takes no registers meanwhile, of which sums and scores leave few: a product takes an
    address for each 16 columns.
    """
    return count >> 30


@gluon.jit
def load_own_rows(first, second, first_map, second_map, row, head, batch, full):
    """Starts to load two matrices of which a program owns the rows from `row` on."""
    N_BOXES: gl.constexpr = first.shape[0]
    BOX_SIZE: gl.constexpr = first.shape[2]
    mbarrier.expect(full.index(0), 2 * N_BOXES * first_map.block_type.nbytes)
    for i in gl.static_range(N_BOXES):
        place = [batch, row + i * BOX_SIZE, head, 0]
        tma_load(first_map, place, full.index(0), first.index(i))
        tma_load(second_map, place, full.index(0), second.index(i))


@gluon.jit
def make_row_stages(N: gl.constexpr, BLOCK_M: gl.constexpr):
    """Shared memory for N times a float of BLOCK_M rows."""
    LAYOUT: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    return gl.allocate_shared_memory(gl.float32, [N, BLOCK_M], LAYOUT)


@gluon.jit
def load_queries_and_grads(rings, maps, statistics, count, row, n_queries, head, batch):
    """Starts to load queries and gradients of a head, to which the statistics belong.

    The warp reads lse and delta by itself, before it waits for a free stage, as they
    begin at any multiple of 4 bytes.
    """
    q_ring, grad_ring, lse_stages, delta_stages = rings
    q_map, grad_map = maps
    lse_ptr, delta_ptr = statistics
    BLOCK_M: gl.constexpr = lse_stages.shape[1]
    LAYOUT: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    queries = row + gl.arange(0, BLOCK_M, LAYOUT)
    is_query = queries < n_queries
    lse = gl.load(lse_ptr + queries, mask=is_query, other=-float("inf"))
    delta = gl.load(delta_ptr + queries, mask=is_query, other=0.0)
    stage = count % lse_stages.shape[0]
    wait_until_empty(q_ring, count)
    lse_stages.index(stage).store(lse_to_log2(lse))
    load_stage(q_ring, count, q_map, row, head, batch)
    wait_until_empty(grad_ring, count)
    delta_stages.index(stage).store(delta)
    load_stage(grad_ring, count, grad_map, row, head, batch)


@gluon.jit
def load_for_keys(own, own_maps, rings, maps, statistics, sizes, n_kv_heads, order):
    """What the loading warp does for attention_backward_keys_kernel."""
    k_boxes, v_boxes, keys_full, _ = own
    lse_ptr, delta_ptr = statistics
    _, n_heads, n_queries, _ = sizes
    BLOCK_M: gl.constexpr = rings[0][0].shape[2]
    BLOCK_N: gl.constexpr = k_boxes.shape[0] * k_boxes.shape[2]
    batch, kv_head, key, first_row, n_steps, _ = key_tile_at(
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
def skip_steps(first_ring, second_ring, n_used, n_steps):
    """Steps of what the program's other rows need, and a warpgroup's do not."""
    for step in range(n_steps):
        wait_until_full(first_ring, n_used + step)
        release(first_ring, n_used + step)
        wait_until_full(second_ring, n_used + step)
        release(second_ring, n_used + step)


@gluon.jit
def wait_for_each_other(barrier):
    """By a warpgroup, until all for which the barrier waits have come here."""
    mbarrier.arrive(barrier.index(0), count=1)
    mbarrier.wait(barrier.index(0), 0)


@gluon.jit
def store_gradient(map, box, row, head, batch, sums):
    """Stores a warpgroup's sums, by way of a box that all have read by then."""
    box.reshape([sums.shape[0], sums.shape[1]]).store(sums.to(box.dtype))
    fence_async_shared()
    tma_store(map, [batch, row, head, 0], box)
