"""The second launch of a call whose keys are split: its parts are put together.

A part's sums are relative to its own largest score, which is off the largest of all by
a factor of a power of two. The parts are added in the same order in every run. They
were written just before, and mostly come from the L2.
"""

import triton
import triton.language as tl

from triton_kernels.attention.tiles import fast_exp2
from triton_kernels.common.griddepcontrol import (
    griddepcontrol_launch_dependents,
    griddepcontrol_wait,
)
from triton_kernels.common.math import LOG2_E, finite_origin


@triton.jit
def means_of(sums, row_sum):
    """Sums divided by the sum of their weights; 0 for a query that sees no key."""
    return sums * tl.where(row_sum == 0.0, 0.0, 1.0 / row_sum)


@triton.jit
def attention_combine_kernel(
    out_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    lse_ptr,  # (n_batches, n_heads, n_queries)
    parts_ptr,  # (n_rows, n_splits, head_dim), just written
    statistics_ptr,  # (n_rows, n_splits, 2), just written
    n_rows,
    n_heads,
    n_queries,
    head_dim,
    out_stride_batch,
    out_stride_row,
    out_stride_head,
    scale,
    softcap,
    n_splits,
    BLOCK_N: tl.constexpr,
    PARTS: tl.constexpr,
    IS_PLAIN: tl.constexpr,
):
    # -- tile: a program owns BLOCK_N columns of a row, and reads PARTS parts at a time
    griddepcontrol_launch_dependents()
    n_col_tiles = tl.cdiv(head_dim, BLOCK_N)
    tile = tl.program_id(0).to(tl.int64)
    row, col = tile // n_col_tiles, tile % n_col_tiles * BLOCK_N
    query, head = row % n_queries, row // n_queries % n_heads
    batch = row // n_queries // n_heads
    out_ptr += batch * out_stride_batch + query * out_stride_row
    out_ptr += head * out_stride_head
    parts_ptr += row * n_splits * head_dim
    statistics_ptr += row * n_splits * 2
    cols, parts = col + tl.arange(0, BLOCK_N), tl.arange(0, PARTS)
    unit = scale if IS_PLAIN else 1.0

    # -- compute: the largest score, and then all sums relative to it
    griddepcontrol_wait()
    row_max = tl.full([PARTS], -float("inf"), tl.float32)
    for start in range(0, n_splits, PARTS):
        part_max = tl.load(
            statistics_ptr + (start + parts) * 2,
            mask=start + parts < n_splits,
            other=-float("inf"),
        )
        row_max = tl.maximum(row_max, part_max)
    origin = finite_origin(tl.max(row_max, axis=0))
    row_sums = tl.zeros([PARTS], tl.float32)
    sums = tl.zeros([PARTS, BLOCK_N], tl.float32)
    for start in range(0, n_splits, PARTS):
        is_part = start + parts < n_splits
        statistics = statistics_ptr + (start + parts) * 2
        part_max = tl.load(statistics, mask=is_part, other=-float("inf"))
        part_sum = tl.load(statistics + 1, mask=is_part, other=0.0)
        part = tl.load(
            parts_ptr + (start + parts)[:, None] * head_dim + cols[None, :],
            mask=is_part[:, None] & (cols < head_dim)[None, :],
            other=0.0,
        )
        factor = fast_exp2((part_max - origin) * (unit * LOG2_E))
        row_sums += factor * part_sum
        sums += factor[:, None] * part
    row_sum = tl.sum(row_sums, axis=0)

    # -- store: rounded once
    out = means_of(tl.sum(sums, axis=0), row_sum)
    tl.store(out_ptr + cols, out.to(out_ptr.dtype.element_ty), mask=cols < head_dim)
    tl.store(lse_ptr + row, origin * unit + tl.log(row_sum), mask=col == 0)
