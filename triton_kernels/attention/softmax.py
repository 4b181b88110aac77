"""Softmax of scores that come tile by tile, in the registers of a warpgroup.

A lane has 2 of each 8 columns, in row lane / 4 and 8 rows below, as wgmma leaves them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_kernels.attention.scores import seeing_queries, visible_keys
from triton_kernels.common.math import finite_origin


@gluon.jit
def sums_of_lanes(p):
    """For each row, a sum for each of its four lanes: nothing has to be exchanged."""
    return gl.sum(gl.sum(p.reshape([p.shape[0], p.shape[1] // 8, 4, 2]), 3), 1)


@gluon.jit
def hide_outside(scores, first, end, start):
    """Hides scores before the column `first` of each row, and those from its `end` on.

    Columns count from `start`. The part of their number that a lane decides is taken
    from the ends instead: what is left are constants, which take no registers.
    """
    LANE_BITS: gl.constexpr = 6  # a lane has 2 of each 8 columns
    COLS: gl.constexpr = gl.SliceLayout(0, scores.type.layout)
    cols = gl.arange(0, scores.shape[1], COLS)
    lane_start = start + (cols & LANE_BITS)[None, :]
    cols = (cols & ~LANE_BITS)[None, :]
    is_seen = (first[:, None] - lane_start <= cols) & (cols < end[:, None] - lane_start)
    return gl.where(is_seen, scores, -float("inf"))


@gluon.jit
def hide_unseen(scores, row, key, sizes, window):
    """Hides the scores of the keys, from `key` on, that queries do not see."""
    ROWS: gl.constexpr = gl.SliceLayout(1, scores.type.layout)
    queries = row + gl.arange(0, scores.shape[0], ROWS)
    first, end = visible_keys(queries, sizes[2], sizes[3], window[0], window[1])
    return hide_outside(scores, first, end, key)


@gluon.jit
def hide_unseeing(scores, row, key, sizes, window):
    """Likewise of transposed scores, whose columns are the queries from `row` on."""
    ROWS: gl.constexpr = gl.SliceLayout(1, scores.type.layout)
    keys = key + gl.arange(0, scores.shape[0], ROWS)
    first, end = seeing_queries(keys, sizes[2], sizes[3], window[0], window[1])
    return hide_outside(scores, first, end, row)


@gluon.jit
def unit_of(row_max, scale_log2):
    """What leads from a row's scores to exponents of 2: scale_log2, or a power of two.

    A score's product is not rounded before the origin is subtracted, which is such a
    product, rounded. That makes no difference up to 2^23. Beyond, it could be a factor
    of 2^30 in exponentials; there a power of two, whose products are exact, is near
    enough: scores that differ are so far apart that one of them has all the weight.
    """
    EXPONENT: gl.constexpr = 0x7F800000
    power = (scale_log2.to(gl.int32, bitcast=True) & EXPONENT).to(
        gl.float32, bitcast=True
    )
    is_fine = gl.abs(row_max) * scale_log2 < 2.0**23
    return gl.where(is_fine, scale_log2, power)


@gluon.jit
def add_scores(scores, old_max, row_max, row_sums, scale_log2):
    """Turns scores into exponentials relative to row_max, which was old_max before.

    Returns them, row_sums by lane, and what earlier sums have to be multiplied by.
    """
    origin, unit = finite_origin(row_max), unit_of(row_max, scale_log2)
    # Exactly 1 where the maximum stays, however many tiles there are.
    rescale = gl.exp2((old_max - origin) * unit)
    origin *= unit
    p = gl.exp2(scores * unit[:, None] - origin[:, None])
    ROWS: gl.constexpr = gl.SliceLayout(1, row_sums.type.layout)
    row_sums = row_sums * gl.convert_layout(rescale, ROWS)[:, None] + sums_of_lanes(p)
    return p, row_sums, rescale
