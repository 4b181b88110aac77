"""Rows too long for registers: KEPT columns stay there, the rest is read twice.

A first pass over the rest finds the sum. A second writes the result, from the last tile
to the first, so that it begins with what the caches have seen last.
"""

import triton
import triton.language as tl

from triton_kernels.common.rows import load_columns, row_offset, split_row
from triton_kernels.common.vec import known_multiple


@triton.jit
def softmax_backward_long_kernel(
    out_ptr,  # (n_rows, n_cols)
    grad_ptr,  # (n_rows, n_cols)
    y_ptr,  # (n_rows, n_cols)
    n_rows,
    n_cols: tl.constexpr,
    rows_per_batch,
    grad_stride_batch,
    grad_stride_row,
    y_stride_batch,
    y_stride_row,
    KEPT: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
    VEC_SIZE: tl.constexpr,
):
    # -- tile: a program owns a row and walks over it in tiles of STEPS times BLOCK_N
    # columns
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    y_stride_batch = known_multiple(y_stride_batch, DIVISIBILITY)
    y_stride_row = known_multiple(y_stride_row, DIVISIBILITY)
    TILE: tl.constexpr = STEPS * BLOCK_N
    LAST: tl.constexpr = KEPT + (n_cols - KEPT - 1) // TILE * TILE
    cols = tl.arange(0, STEPS)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    kept_cols = tl.arange(0, KEPT)
    end = tl.cast(n_cols, tl.int64)  # or the step after the last could overflow
    dtype = out_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    grad_start = row_offset(
        row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
    )
    y_start = row_offset(row, n_rows, rows_per_batch, y_stride_batch, y_stride_row)
    out_start = row * n_cols

    # -- load: the kept columns, and the elements around a row's vectors, as
    # softmax_long_kernel does
    n_body = n_cols
    if VEC_SIZE > 0:
        first_vec, n_body, edge_offsets, is_edge = split_row(
            out_start, n_cols, VEC_SIZE
        )
        edge_grad = tl.load(grad_ptr + edge_offsets, mask=is_edge, other=0.0)
        edge_y = tl.load(y_ptr + edge_offsets, mask=is_edge, other=0.0)
        edge_grad, edge_y = edge_grad.to(tl.float32), edge_y.to(tl.float32)
        grad_start, y_start, out_start = first_vec, first_vec, first_vec
    grad_row_ptr, y_row_ptr = grad_ptr + grad_start, y_ptr + y_start
    out_row_ptr = out_ptr + out_start
    kept_grad = tl.load(grad_row_ptr + kept_cols, eviction_policy="evict_first")
    kept_y = tl.load(y_row_ptr + kept_cols, eviction_policy="evict_first")

    # -- sum: of the products in the columns that each lane sees
    lane_sum = tl.zeros([BLOCK_N], tl.float32)
    for start in range(KEPT, end, TILE):
        grad = load_columns(grad_row_ptr + start, cols, n_body - start, "evict_last")
        y = load_columns(y_row_ptr + start, cols, n_body - start, "evict_last")
        lane_sum += tl.sum(grad * y, axis=0)

    # -- combine: the lanes' sums, and those of the kept columns
    kept_grad, kept_y = kept_grad.to(tl.float32), kept_y.to(tl.float32)
    row_sum = tl.sum(lane_sum, axis=0) + tl.sum(kept_grad * kept_y, axis=0)
    if VEC_SIZE > 0:
        row_sum += tl.sum(edge_grad * edge_y, axis=0)

    # -- store: the second read, after which nobody needs grad and y any more
    for offset in range(KEPT, end, TILE):
        start = LAST + KEPT - offset
        grad = load_columns(grad_row_ptr + start, cols, n_body - start, "evict_first")
        y = load_columns(y_row_ptr + start, cols, n_body - start, "evict_first")
        out = (y * (grad - row_sum)).to(dtype)
        mask = cols < n_body - start
        tl.store(out_row_ptr + start + cols, out, mask, eviction_policy="evict_first")
    out = (kept_y * (kept_grad - row_sum)).to(dtype)
    tl.store(out_row_ptr + kept_cols, out, eviction_policy="evict_first")
    if VEC_SIZE > 0:
        out = (edge_y * (edge_grad - row_sum)).to(dtype)
        tl.store(out_ptr + edge_offsets, out, mask=is_edge)
