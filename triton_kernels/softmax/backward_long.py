"""Rows too long for registers, which begin anywhere: programs do not share them.

KEPT columns stay in registers, the rest is read twice. A first pass over it finds the
sum. A second writes the result, from the last tile to the first, so that it begins with
what the caches have seen last.
"""

import triton
import triton.language as tl

from triton_kernels.common.rows import split_row
from triton_kernels.softmax.long import load_columns


@triton.jit
def softmax_backward_long_kernel(
    out_ptr,  # (n_rows, n_cols)
    grad_ptr,  # (n_rows, n_cols), contiguous
    y_ptr,  # (n_rows, n_cols), contiguous
    n_cols: tl.constexpr,
    KEPT: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC_SIZE: tl.constexpr,
):
    # -- tile: a program owns a row and walks over it in tiles of STEPS times BLOCK_N
    # columns, which begin at its first vector
    TILE: tl.constexpr = STEPS * BLOCK_N
    LAST: tl.constexpr = KEPT + (n_cols - KEPT - 1) // TILE * TILE
    cols = tl.arange(0, STEPS)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    kept_cols = tl.arange(0, KEPT)
    end = tl.cast(n_cols, tl.int64)  # or the step after the last could overflow
    dtype = out_ptr.dtype.element_ty
    row_start = tl.program_id(0).to(tl.int64) * n_cols
    first_vec, n_body, edge_offsets, is_edge = split_row(row_start, n_cols, VEC_SIZE)
    grad_row_ptr, y_row_ptr = grad_ptr + first_vec, y_ptr + first_vec
    out_row_ptr = out_ptr + first_vec

    # -- load: the kept columns, and the elements around a row's vectors
    edge_grad = tl.load(grad_ptr + edge_offsets, is_edge, 0.0).to(tl.float32)
    edge_y = tl.load(y_ptr + edge_offsets, is_edge, 0.0).to(tl.float32)
    kept_grad = tl.load(grad_row_ptr + kept_cols, eviction_policy="evict_first")
    kept_y = tl.load(y_row_ptr + kept_cols, eviction_policy="evict_first")

    # -- sum: of the products in the columns that each lane sees
    lane_sum = tl.zeros([BLOCK_N], tl.float32)
    for start in range(KEPT, end, TILE):
        n_left = n_body - start
        grad = load_columns(grad_row_ptr + start, cols, n_left, "evict_last", 0.0)
        y = load_columns(y_row_ptr + start, cols, n_left, "evict_last", 0.0)
        lane_sum += tl.sum(grad * y, axis=0)

    # -- combine: the lanes' sums, and those of the kept columns
    kept_grad, kept_y = kept_grad.to(tl.float32), kept_y.to(tl.float32)
    row_sum = tl.sum(lane_sum, axis=0) + tl.sum(kept_grad * kept_y, axis=0)
    row_sum += tl.sum(edge_grad * edge_y, axis=0)

    # -- store: the second read, after which nobody needs grad and y any more
    for offset in range(KEPT, end, TILE):
        start = LAST + KEPT - offset
        n_left = n_body - start
        grad = load_columns(grad_row_ptr + start, cols, n_left, "evict_first", 0.0)
        y = load_columns(y_row_ptr + start, cols, n_left, "evict_first", 0.0)
        out = (y * (grad - row_sum)).to(dtype)
        out_tile_ptr = out_row_ptr + start + cols
        tl.store(out_tile_ptr, out, cols < n_left, eviction_policy="evict_first")
    out = (kept_y * (kept_grad - row_sum)).to(dtype)
    tl.store(out_row_ptr + kept_cols, out, eviction_policy="evict_first")
    out = (edge_y * (edge_grad - row_sum)).to(dtype)
    tl.store(out_ptr + edge_offsets, out, mask=is_edge)
