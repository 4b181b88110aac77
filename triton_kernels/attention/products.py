"""The products of the kernels for Hopper, which a warpgroup starts without waiting."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    warpgroup_mma,
    warpgroup_mma_wait,
)

from triton_kernels.attention.ring import box_of, matrix_at


@gluon.jit
def start_scores(q, k, no_scores):
    """Scores = q times k transposed, both in shared memory, and of no_scores' shape."""
    return warpgroup_mma(q, k.permute((1, 0)), no_scores, use_acc=False, is_async=True)


@gluon.jit
def add_scores(scores, q, k):
    """Scores += q times k transposed, both in shared memory."""
    return warpgroup_mma(q, k.permute((1, 0)), scores, is_async=True)


@gluon.jit
def start_scores_of_tile(
    q_boxes, first_box, k_ring, count, no_scores, HEAD_DIM: gl.constexpr
):
    """Likewise of rows that lie in several boxes, or in a box with more columns.

    Those of q are the boxes from first_box on, those of k the ones of the tile that
    comes after `count` others.
    """
    BOX_COLS: gl.constexpr = q_boxes.shape[4]
    q, k = matrix_at(q_boxes, first_box), box_of(k_ring, count, 0)
    if HEAD_DIM % BOX_COLS == 0:
        scores = start_scores(q, k, no_scores)
        for i in gl.static_range(1, HEAD_DIM // BOX_COLS):
            q, k = matrix_at(q_boxes, first_box + i), box_of(k_ring, count, i)
            scores = add_scores(scores, q, k)
    else:
        COLS: gl.constexpr = 32
        q_cols, k_cols = q.slice(0, COLS, dim=1), k.slice(0, COLS, dim=1)
        scores = start_scores(q_cols, k_cols, no_scores)
        for col in gl.static_range(COLS, HEAD_DIM, COLS):
            q_cols, k_cols = q.slice(col, COLS, dim=1), k.slice(col, COLS, dim=1)
            scores = add_scores(scores, q_cols, k_cols)
    return scores


@gluon.jit
def start_values(out, p, v):
    """Out += p, in registers, times v, in shared memory."""
    return warpgroup_mma(p, v, out, is_async=True)


@gluon.jit
def start_values_of_tile(outs, p, v_ring, count):
    """Likewise of rows in one or three boxes, with sums of their own for each."""
    NUM_BOXES: gl.constexpr = len(outs)
    first = start_values(outs[0], p, box_of(v_ring, count, 0))
    if NUM_BOXES == 1:
        started = (first,)
    else:
        second = start_values(outs[1], p, box_of(v_ring, count, 1))
        started = first, second, start_values(outs[2], p, box_of(v_ring, count, 2))
    return started


@gluon.jit
def wait_for_values(outs):
    """The sums for each box, once there are all that have been started."""
    NUM_BOXES: gl.constexpr = len(outs)
    if NUM_BOXES == 1:
        there = (warpgroup_mma_wait(0, deps=outs),)
    else:
        there = warpgroup_mma_wait(0, deps=outs)
    return there


NUM_SCALED = gl.constexpr(32)  # numbers of a lane, by one piece of PTX


def _scaling(n):
    """PTX that multiplies n numbers by as many factors, if any is not 1 in the warp.

    A lane has numbers of two rows, of which the first and the third are.
    """
    return " ".join(
        [
            "{ .reg .pred scales;",
            f"setp.neu.f32 scales, ${2 * n}, 0f3F800000;",
            f"setp.neu.or.f32 scales, ${2 * n + 2}, 0f3F800000, scales;",
            "vote.sync.any.pred scales, scales, -1;",
            "@!scales bra DONE;",
            *(f"mul.f32 ${i}, ${i}, ${2 * n + i};" for i in range(n)),
            "DONE: }",
        ]
    )


def _scaling_registers(n):
    """Those of products are those of the numbers, so that none has to be moved."""
    return ",".join(["=f"] * n + [str(i) for i in range(n)] + ["f"] * n)


SCALING = gl.constexpr(_scaling(NUM_SCALED.value))
SCALING_REGISTERS = gl.constexpr(_scaling_registers(NUM_SCALED.value))


@gluon.jit
def scaled_rows(out, factors):
    """Rows times factors: most often all of them are 1, and a warp has no work."""
    _, factors = gl.broadcast(out, factors)
    return gl.inline_asm_elementwise(
        SCALING,
        SCALING_REGISTERS,
        [out, factors],
        dtype=gl.float32,
        is_pure=True,
        pack=NUM_SCALED,
    )


@gluon.jit
def scaled(outs, factors):
    """The sums for each box, whose rows are multiplied by factors."""
    NUM_BOXES: gl.constexpr = len(outs)
    if NUM_BOXES == 1:
        products = (scaled_rows(outs[0], factors),)
    else:
        first, second = scaled_rows(outs[0], factors), scaled_rows(outs[1], factors)
        products = first, second, scaled_rows(outs[2], factors)
    return products
