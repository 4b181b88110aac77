"""Gradients of queries that programs add up in memory: the kernels before and after.

Between them comes attention_backward_kernel, in backward_twin.py. Of 64 queries of a
head memory has their sums, behind these lse and delta, and then how many programs have
added their parts, where they take turns; that fills a line of the L2, so that the sums
of the next 64 queries begin one. Sums are in boxes of 64 columns. A box has the order
in which a warpgroup holds 64 x 64 of them: four of each thread, which are two
neighbours and the two that are 8 rows below, then those of the next 8 columns. So an
instruction of a warp adds to 512 neighbouring bytes.
"""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    tma,
)

from triton_kernels.attention.backward_rings import lse_to_log2
from triton_kernels.attention.ring import make_stages
from triton_kernels.common.gluon_names import tma_store
from triton_kernels.common.vec import known_multiple

BOX_SIZE = tl.constexpr(64)  # queries, and columns of a box


@triton.jit
def sums_at(sums_ptr, index, HEAD_DIM: tl.constexpr):
    """The sums of the index-th 64 queries."""
    return sums_ptr + index.to(tl.int64) * (BOX_SIZE * (HEAD_DIM + 2) + 32)


@triton.jit
def count_sums(n_queries, BLOCK_M: tl.constexpr):
    """How many times 64 queries of a head there are in all steps, of BLOCK_M each."""
    return tl.cdiv(n_queries, BLOCK_M) * (BLOCK_M // BOX_SIZE)


@triton.jit
def statistics_at(sums_ptr, index, HEAD_DIM: tl.constexpr):
    """Their lse, in units of log 2, and their delta.

    A query behind the last one has inf and 0.
    """
    lse_ptr = sums_at(sums_ptr, index, HEAD_DIM) + BOX_SIZE * HEAD_DIM
    return lse_ptr, lse_ptr + BOX_SIZE


@gluon.jit
def load_statistics(sums_ptr, index, BLOCK_M: gl.constexpr, HEAD_DIM: gl.constexpr):
    """By a warp: those of BLOCK_M queries, from the index-th 64 on."""
    rows = gl.arange(0, BLOCK_M, gl.BlockedLayout([2], [32], [1], [0]))
    lse_ptr, delta_ptr = statistics_at(sums_ptr, index + rows // BOX_SIZE, HEAD_DIM)
    return gl.load(lse_ptr + rows % BOX_SIZE), gl.load(delta_ptr + rows % BOX_SIZE)


@triton.jit
def n_added_at(sums_ptr, index, HEAD_DIM: tl.constexpr):
    """How many programs have added their parts."""
    ptr = sums_at(sums_ptr, index, HEAD_DIM) + BOX_SIZE * (HEAD_DIM + 2)
    return ptr.to(tl.pointer_type(tl.int32), bitcast=True)


@gluon.jit
def add_to_sums(sums_ptr, index, part, HEAD_DIM: gl.constexpr, W: gl.constexpr):
    """Adds what is in registers as wgmma leaves it, to the W-th box of a step's sums.

    index: of the first 64 queries of the step. Boxes are counted by rows, which are of
    64 queries each.
    """
    NUM_SUMS: gl.constexpr = BOX_SIZE * BOX_SIZE
    COL_BOXES: gl.constexpr = HEAD_DIM // BOX_SIZE
    # Rows as warps, halves and lanes, columns as instructions, lanes and neighbours.
    part = part.reshape([4, 2, 8, BOX_SIZE // 8, 4, 2]).permute([3, 0, 2, 4, 1, 5])
    part = part.reshape([NUM_SUMS])
    box_ptr = sums_at(sums_ptr, index + W // COL_BOXES, HEAD_DIM)
    places = W % COL_BOXES * NUM_SUMS + gl.arange(0, NUM_SUMS, part.type.layout)
    # Which are neighbours, so that this is red.global.add.v4.f32: nobody waits for it.
    gl.atomic_add(box_ptr + places, part, sem="relaxed")


@triton.jit
def attention_begin_sums_kernel(
    sums_ptr,  # (n_batches, n_heads, n_sums)
    grad_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    out_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    grad_lse_ptr,  # (n_batches, n_heads, n_queries), or None
    lse_ptr,  # (n_batches, n_heads, n_queries)
    n_sums,
    n_heads,
    n_queries,
    head_dim,
    grad_stride_batch,
    grad_stride_row,
    grad_stride_head,
    out_stride_batch,
    out_stride_row,
    out_stride_head,
    HEAD_DIM: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    """Before: statistics, of which delta.py has the formula, and sums of 0.

    Nobody has added to them.
    """
    # -- tile: a program owns 64 queries of a head
    index = tl.program_id(0)
    head, batch = index // n_sums % n_heads, index // n_sums // n_heads
    head, batch = head.to(tl.int64), batch.to(tl.int64)
    queries = (index % n_sums).to(tl.int64) * BOX_SIZE + tl.arange(0, BOX_SIZE)
    cols = tl.arange(0, HEAD_DIM)[None, :]
    is_query = queries < n_queries
    head_dim = known_multiple(head_dim, DIVISIBILITY)
    grad_ptr += batch * known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_ptr += head * known_multiple(grad_stride_head, DIVISIBILITY)
    grads = queries[:, None] * known_multiple(grad_stride_row, DIVISIBILITY) + cols
    out_ptr += batch * known_multiple(out_stride_batch, DIVISIBILITY)
    out_ptr += head * known_multiple(out_stride_head, DIVISIBILITY)
    outs = queries[:, None] * known_multiple(out_stride_row, DIVISIBILITY) + cols
    statistics = (batch * n_heads + head) * n_queries + queries

    # -- compute: in float32
    mask = is_query[:, None] & (cols < head_dim)
    grad = tl.load(grad_ptr + grads, mask=mask, other=0.0)
    out = tl.load(out_ptr + outs, mask=mask, other=0.0)
    delta = tl.sum(grad.to(tl.float32) * out.to(tl.float32), axis=1)
    if grad_lse_ptr is not None:
        delta -= tl.load(grad_lse_ptr + statistics, mask=is_query, other=0.0)
    lse = tl.load(lse_ptr + statistics, mask=is_query, other=-float("inf"))

    # -- store: in float32
    sums = tl.arange(0, BOX_SIZE * HEAD_DIM)
    zeros = tl.zeros([BOX_SIZE * HEAD_DIM], tl.float32)
    tl.store(sums_at(sums_ptr, index, HEAD_DIM) + sums, zeros)
    own_lse_ptr, own_delta_ptr = statistics_at(sums_ptr, index, HEAD_DIM)
    tl.store(own_lse_ptr + tl.arange(0, BOX_SIZE), lse_to_log2(lse))
    tl.store(own_delta_ptr + tl.arange(0, BOX_SIZE), delta)
    tl.store(n_added_at(sums_ptr, index, HEAD_DIM), 0)


@gluon.jit
def attention_end_sums_kernel(
    grad_q_map,  # (n_batches, n_queries, n_heads, head_dim)
    sums_ptr,  # (n_batches, n_heads, n_sums)
    n_sums,
    n_heads,
    scale,
    HEAD_DIM: gl.constexpr,
):
    """After: the sums, times a factor and rounded."""
    # -- tile: a program owns 64 queries of a head, and 64 columns
    COL_BOXES: gl.constexpr = HEAD_DIM // BOX_SIZE
    NUM_SUMS: gl.constexpr = BOX_SIZE * BOX_SIZE
    box = make_stages(grad_q_map, 1).index(0)
    col_box, index = gl.program_id(0) % COL_BOXES, gl.program_id(0) // COL_BOXES
    head, batch = index // n_sums % n_heads, index // n_sums // n_heads

    # -- load: a warpgroup's sums
    FOURS: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    places = col_box * NUM_SUMS + gl.arange(0, NUM_SUMS, FOURS)
    sums = gl.load(sums_at(sums_ptr, index, HEAD_DIM) + places)
    sums = sums.reshape([8, 4, 8, 4, 2, 2]).permute([1, 4, 2, 0, 3, 5])
    sums = sums.reshape([BOX_SIZE, BOX_SIZE])

    # -- store: by way of shared memory, rounded once
    box.reshape([BOX_SIZE, BOX_SIZE]).store((sums * scale).to(box.dtype))
    fence_async_shared()
    row, col = index % n_sums * BOX_SIZE, col_box * BOX_SIZE
    tma_store(grad_q_map, [batch, row, head, col], box)
    tma.store_wait(0)
