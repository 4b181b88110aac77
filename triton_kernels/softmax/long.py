"""A row too long for registers: KEPT columns stay there, the rest is read twice.

A single pass over the rest finds maximum and sum, which is rescaled whenever the
maximum grows. The second read may find x in a cache, which the results leave first.
"""

import triton
import triton.language as tl

from triton_kernels.common.math import fast_exp, finite_origin
from triton_kernels.common.rows import row_offset, split_row
from triton_kernels.common.vec import known_multiple


@triton.jit
def load_columns(x_ptr, cols, n_left, EVICTION: tl.constexpr):
    """The columns of x that are among the n_left, and -inf for the others."""
    fill = -float("inf")
    x = tl.load(x_ptr + cols, mask=cols < n_left, other=fill, eviction_policy=EVICTION)
    return x.to(tl.float32)


@triton.jit
def softmax_long_kernel(
    out_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
    n_rows,
    n_cols: tl.constexpr,
    rows_per_batch,
    x_stride_batch,
    x_stride_row,
    KEPT: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
    VEC_SIZE: tl.constexpr,
):
    """Each length of a row is compiled by itself.

    Only where the number of columns is known does the compiler have the loads of all
    tiles under way at the same time. Rows that are no multiple of a vector, and between
    which there is nothing in x either, have their vectors at multiples of VEC_SIZE,
    which else is 0.
    """
    # -- tile: a program owns a row and walks over it in tiles of STEPS times BLOCK_N
    # columns
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    row = tl.program_id(0).to(tl.int64)
    x_start = row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
    out_start = row * n_cols
    TILE: tl.constexpr = STEPS * BLOCK_N
    cols = tl.arange(0, STEPS)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    kept_cols = tl.arange(0, KEPT)
    end = tl.cast(n_cols, tl.int64)  # or the step after the last could overflow

    # -- load: the kept columns, and of rows that begin anywhere the few elements before
    # and behind the vectors, which begin at multiples of 16 bytes
    n_body = n_cols
    if VEC_SIZE > 0:
        x_start, n_body, edge_offsets, is_edge = split_row(out_start, n_cols, VEC_SIZE)
        edge = tl.load(x_ptr + edge_offsets, mask=is_edge, other=-float("inf"))
        edge = edge.to(tl.float32)
        out_edge_ptr = out_ptr + edge_offsets
        out_start = x_start
    x_ptr += x_start
    out_ptr += out_start
    kept = tl.load(x_ptr + kept_cols, eviction_policy="evict_first")

    # -- max_sum: of the columns that each lane sees
    lane_max = tl.full([BLOCK_N], -float("inf"), tl.float32)
    lane_sum = tl.zeros([BLOCK_N], tl.float32)
    for start in range(KEPT, end, TILE):
        x = load_columns(x_ptr + start, cols, n_body - start, "evict_last")
        new_max = tl.maximum(lane_max, tl.max(x, axis=0))
        origin = finite_origin(new_max)
        numerator = fast_exp(x - origin[None, :])
        lane_sum = lane_sum * fast_exp(lane_max - origin) + tl.sum(numerator, axis=0)
        lane_max = new_max

    # -- combine: the lanes' maxima and sums, and those of the kept columns
    kept = kept.to(tl.float32)
    row_max = tl.maximum(tl.max(lane_max, axis=0), tl.max(kept, axis=0))
    if VEC_SIZE > 0:
        row_max = tl.maximum(row_max, tl.max(edge, axis=0))
    kept_numerator = fast_exp(kept - row_max)
    row_sum = tl.sum(lane_sum * fast_exp(lane_max - row_max), axis=0)
    row_sum += tl.sum(kept_numerator, axis=0)
    if VEC_SIZE > 0:
        edge_numerator = fast_exp(edge - row_max)
        row_sum += tl.sum(edge_numerator, axis=0)

    # -- store: the second read, after which nobody needs x any more
    inverse_sum = 1.0 / row_sum
    dtype = out_ptr.dtype.element_ty
    for start in range(KEPT, end, TILE):
        x = load_columns(x_ptr + start, cols, n_body - start, "evict_first")
        out = (fast_exp(x - row_max) * inverse_sum).to(dtype)
        mask = cols < n_body - start
        tl.store(out_ptr + start + cols, out, mask, eviction_policy="evict_first")
    out = (kept_numerator * inverse_sum).to(dtype)
    tl.store(out_ptr + kept_cols, out, eviction_policy="evict_first")
    if VEC_SIZE > 0:
        out = (edge_numerator * inverse_sum).to(dtype)
        tl.store(out_edge_ptr, out, mask=is_edge)
