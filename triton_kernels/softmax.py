"""Softmax of every row of a matrix, and its backward.

  softmax:          out[row, :] = exp(x[row, :] - m) / sum(exp(x[row, :] - m)),
                    m = max(x[row, :])
  softmax_backward: out[row, :] = y[row, :] * (grad[row, :] - s),
                    s = sum(grad[row, :] * y[row, :]), y what softmax returned

Layout   out: (n_rows, n_cols), contiguous. x, grad, y: columns contiguous; row r of x
         begins at
         (r / rows_per_batch) * x_stride_batch + (r % rows_per_batch) * x_stride_row.
Traffic  reads and writes every element once as long as a row fits into the registers or
         the L1 of a multiprocessor (32768 columns); beyond that a row is read twice, as
         far as registers and caches do not hold it.
Limits   accumulates in float32. A row with NaN or +inf, or of -inf alone, is NaN.
Mirror   csrc/softmax.cu differs in softmax_long_kernel and
         softmax_backward_long_kernel, because Triton has neither shared memory to keep
         a row in nor clusters to share one: it reads a long row again, out of a cache
         that may still have it.
Source   Milakov & Gimelshein 2018, arXiv:1805.02867 (algorithm 2; 3 for long rows)
"""

import math

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.math import fast_exp
from triton_kernels.common.rows import row_offset, split_row, tile_for
from triton_kernels.common.vec import VEC_BYTES, known_multiple


@triton.jit
def softmax_kernel(
    out_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
    n_rows,
    n_cols,
    rows_per_batch,
    x_stride_batch,
    x_stride_row,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    """A row in registers: a program holds BLOCK_M rows of at most BLOCK_N columns."""
    # -- tile: a program owns one row or several short ones
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.arange(0, BLOCK_N)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    x_ptr += row_offset(rows, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
    out_ptr += rows * n_cols

    # -- load: columns past the end become -inf, which exp maps to 0
    x = tl.load(x_ptr + cols, mask=mask, other=-float("inf")).to(tl.float32)

    # -- max: subtracted below, so that no exponential overflows
    row_max = tl.max(x, axis=1, keep_dims=True)

    # -- sum: of the numerators
    x = fast_exp(x - row_max)
    row_sum = tl.sum(x, axis=1, keep_dims=True)

    # -- store: one division for the row, one multiplication for every element
    inverse_sum = 1.0 / row_sum
    tl.store(out_ptr + cols, (x * inverse_sum).to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _load_tile(x_ptr, cols, n_left, EVICTION: tl.constexpr):
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
    """A row that is read again.

    As long as the L1 holds it, reading it once more costs less than the registers that
    would keep it: one pass over its tiles finds the maximum, one the sum, and a third
    writes the result. Beyond that the first KEPT columns stay in registers, and of the
    others a single pass finds both.

    The number of columns is known to the compiler, which only then has the loads of all
    tiles under way at the same time: each length of a row is compiled by itself.

    Rows that are no multiple of a vector, and between which there is nothing in x
    either, have their vectors at multiples of VEC_SIZE, which else is 0.
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
    # In 32 bits the step after the last could overflow.
    end = tl.cast(n_cols, tl.int64) if KEPT else n_cols

    # -- load: of rows that begin anywhere, first the few elements before and behind the
    # vectors, which begin at multiples of 16 bytes
    if VEC_SIZE > 0:
        first_vec, n_body, edge_cols, is_edge = split_row(out_start, n_cols, VEC_SIZE)
        edge_offsets = out_start + edge_cols
        edge = tl.load(x_ptr + edge_offsets, mask=is_edge, other=-float("inf"))
        edge = edge.to(tl.float32)
        out_edge_ptr = out_ptr + edge_offsets
        x_start, out_start = first_vec, first_vec
    else:
        n_body = n_cols
    x_ptr += x_start
    out_ptr += out_start

    # -- max_sum: of what each lane sees
    lane_max = tl.full([BLOCK_N], -float("inf"), tl.float32)
    lane_sum = tl.zeros([BLOCK_N], tl.float32)
    if KEPT == 0:
        for start in range(0, end, TILE):
            x = _load_tile(x_ptr + start, cols, n_body - start, "evict_last")
            lane_max = tl.maximum(lane_max, tl.max(x, axis=0))
        row_max = tl.max(lane_max, axis=0)
        if VEC_SIZE > 0:
            row_max = tl.maximum(row_max, tl.max(edge, axis=0))
        for start in range(0, end, TILE):
            x = _load_tile(x_ptr + start, cols, n_body - start, "evict_last")
            lane_sum += tl.sum(fast_exp(x - row_max), axis=0)
        row_sum = tl.sum(lane_sum, axis=0)
    else:
        kept = tl.load(x_ptr + tl.arange(0, KEPT), eviction_policy="evict_first")
        # The sum is rescaled as the maximum grows.
        for start in range(KEPT, end, TILE):
            x = _load_tile(x_ptr + start, cols, n_body - start, "evict_last")
            new_max = tl.maximum(lane_max, tl.max(x, axis=0))
            # As long as nothing but -inf was seen, the sum is taken relative to 0: it
            # stays 0, where -inf - -inf would make it NaN.
            origin = tl.where(new_max == -float("inf"), 0.0, new_max)
            tile_sum = tl.sum(fast_exp(x - origin[None, :]), axis=0)
            lane_sum = lane_sum * fast_exp(lane_max - origin) + tile_sum
            lane_max = new_max

        # -- combine: the lanes' maxima and sums, and those of the kept columns
        kept = kept.to(tl.float32)
        row_max = tl.maximum(tl.max(lane_max, axis=0), tl.max(kept, axis=0))
        if VEC_SIZE > 0:
            row_max = tl.maximum(row_max, tl.max(edge, axis=0))
        row_sum = tl.sum(lane_sum * fast_exp(lane_max - row_max), axis=0)
        kept = fast_exp(kept - row_max)
        row_sum += tl.sum(kept, axis=0)
    if VEC_SIZE > 0:
        edge = fast_exp(edge - row_max)
        row_sum += tl.sum(edge, axis=0)

    # -- store: the last pass, after which nobody needs x any more
    inverse_sum = 1.0 / row_sum
    dtype = out_ptr.dtype.element_ty
    for start in range(KEPT, end, TILE):
        x = _load_tile(x_ptr + start, cols, n_body - start, "evict_first")
        out = fast_exp(x - row_max) * inverse_sum
        tl.store(out_ptr + start + cols, out.to(dtype), mask=cols < n_body - start)
    if KEPT:
        tl.store(out_ptr + tl.arange(0, KEPT), (kept * inverse_sum).to(dtype))
    if VEC_SIZE > 0:
        out = (edge * inverse_sum).to(dtype)
        tl.store(out_edge_ptr, out, mask=is_edge)


@triton.jit
def softmax_backward_kernel(
    out_ptr,  # (n_rows, n_cols)
    grad_ptr,  # (n_rows, n_cols)
    y_ptr,  # (n_rows, n_cols)
    n_rows,
    n_cols,
    rows_per_batch,
    grad_stride_batch,
    grad_stride_row,
    y_stride_batch,
    y_stride_row,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    """Rows of grad and y in registers, held as softmax_kernel holds x."""
    # -- tile: a program owns one long row or several short ones
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    y_stride_batch = known_multiple(y_stride_batch, DIVISIBILITY)
    y_stride_row = known_multiple(y_stride_row, DIVISIBILITY)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.arange(0, BLOCK_N)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    grad_ptr += row_offset(
        rows, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
    )
    y_ptr += row_offset(rows, n_rows, rows_per_batch, y_stride_batch, y_stride_row)
    out_ptr += rows * n_cols

    # -- load: columns past the end become 0, which adds nothing to the sum
    grad = tl.load(grad_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + cols, mask=mask, other=0.0).to(tl.float32)

    # -- sum: of the products
    row_sum = tl.sum(grad * y, axis=1, keep_dims=True)

    # -- store: first the difference, which is exact where the two are nearly the same
    out = y * (grad - row_sum)
    tl.store(out_ptr + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _load_tiles(grad_ptr, y_ptr, cols, n_left, EVICTION: tl.constexpr):
    """The columns of grad and y that are among the n_left, and 0 for the others."""
    mask = cols < n_left
    grad = tl.load(grad_ptr + cols, mask=mask, other=0.0, eviction_policy=EVICTION)
    y = tl.load(y_ptr + cols, mask=mask, other=0.0, eviction_policy=EVICTION)
    return grad.to(tl.float32), y.to(tl.float32)


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
    """Rows that are read again, out of a cache as far as it holds them.

    A first pass over their tiles finds the sum. A second writes the result, from the
    last tile to the first, so that it begins with what the caches have seen last.
    """
    # -- tile: a program owns a row and walks over it in tiles of STEPS times BLOCK_N
    # columns. Of rows that the L1 does not hold it takes every num_programs-th: on an
    # H200 a program for each took a fifth longer (bfloat16, 131072 columns).
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    y_stride_batch = known_multiple(y_stride_batch, DIVISIBILITY)
    y_stride_row = known_multiple(y_stride_row, DIVISIBILITY)
    TILE: tl.constexpr = STEPS * BLOCK_N
    LAST: tl.constexpr = KEPT + (n_cols - KEPT - 1) // TILE * TILE
    cols = tl.arange(0, STEPS)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    # In 32 bits the step after the last could overflow.
    end = tl.cast(n_cols, tl.int64) if KEPT else n_cols
    # The compiler resolves a loop of one step, but what it had moved in front of that
    # would stay in registers.
    first = tl.program_id(0).to(tl.int64)
    last, step = (n_rows, tl.num_programs(0)) if KEPT else (first + 1, 1)
    for row in tl.range(first, last, step, disable_licm=KEPT == 0):
        grad_start = row_offset(
            row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
        )
        y_start = row_offset(row, n_rows, rows_per_batch, y_stride_batch, y_stride_row)
        out_start = row * n_cols

        # -- load: the elements around a row's vectors, as softmax_long_kernel does
        if VEC_SIZE > 0:
            first_vec, n_body, edge_cols, is_edge = split_row(
                out_start, n_cols, VEC_SIZE
            )
            edge_offsets = out_start + edge_cols
            edge_grad = tl.load(grad_ptr + edge_offsets, mask=is_edge, other=0.0)
            edge_y = tl.load(y_ptr + edge_offsets, mask=is_edge, other=0.0)
            edge_grad, edge_y = edge_grad.to(tl.float32), edge_y.to(tl.float32)
            grad_start, y_start, out_start = first_vec, first_vec, first_vec
        else:
            n_body = n_cols
        grad_row_ptr, y_row_ptr = grad_ptr + grad_start, y_ptr + y_start
        out_row_ptr = out_ptr + out_start

        # -- sum: of the products in the columns that each lane sees
        if KEPT:
            kept_cols = tl.arange(0, KEPT)
            kept_grad = tl.load(grad_row_ptr + kept_cols, eviction_policy="evict_first")
            kept_y = tl.load(y_row_ptr + kept_cols, eviction_policy="evict_first")
        lane_sum = tl.zeros([BLOCK_N], tl.float32)
        for start in range(KEPT, end, TILE):
            grad, y = _load_tiles(
                grad_row_ptr + start,
                y_row_ptr + start,
                cols,
                n_body - start,
                "evict_last",
            )
            lane_sum += tl.sum(grad * y, axis=0)

        # -- combine: the lanes' sums
        row_sum = tl.sum(lane_sum, axis=0)
        if KEPT:
            kept_grad, kept_y = kept_grad.to(tl.float32), kept_y.to(tl.float32)
            row_sum += tl.sum(kept_grad * kept_y, axis=0)
        if VEC_SIZE > 0:
            row_sum += tl.sum(edge_grad * edge_y, axis=0)

        # -- store: the second pass, after which nobody needs grad and y any more
        for offset in range(KEPT, end, TILE):
            start = LAST + KEPT - offset
            grad, y = _load_tiles(
                grad_row_ptr + start,
                y_row_ptr + start,
                cols,
                n_body - start,
                "evict_first",
            )
            out = y * (grad - row_sum)
            tl.store(
                out_row_ptr + start + cols,
                out.to(out_ptr.dtype.element_ty),
                mask=cols < n_body - start,
                eviction_policy="evict_first",
            )
        if KEPT:
            out = (kept_y * (kept_grad - row_sum)).to(out_ptr.dtype.element_ty)
            tl.store(out_row_ptr + kept_cols, out, eviction_policy="evict_first")
        if VEC_SIZE > 0:
            out = (edge_y * (edge_grad - row_sum)).to(out_ptr.dtype.element_ty)
            tl.store(out_ptr + edge_offsets, out, mask=is_edge)


# The rows of a tile and the warps that share it, by the longest row that fits: short
# rows share a program.
TILES = (  # (most columns, BLOCK_M, num_warps)
    (64, 32, 4),
    (256, 8, 4),
    (512, 4, 4),
    (1024, 4, 4),
)
# Rows that are read out of the L1: the tile of one, by the bytes of an element.
CACHED_TILES = {  # (most columns, BLOCK_N, num_warps)
    2: (
        (2048, 512, 4),
        (3072, 1024, 4),
        (4096, 4096, 8),
        (6144, 1024, 8),
        (8192, 4096, 8),
        (16384, 4096, 16),
        (32768, 8192, 32),
    ),
    4: ((2048, 2048, 8), (16384, 4096, 16), (32768, 32768, 32)),
}
# Rows in registers for the backward, which holds two at once: half as much of each.
BACKWARD_TILES = (  # (most columns, BLOCK_M, num_warps)
    (64, 32, 4),
    (256, 8, 4),
    (512, 4, 4),
    (1024, 2, 4),
    (2048, 1, 4),
)
# And out of the L1, where that is faster.
BACKWARD_CACHED_TILES = (  # (most columns, BLOCK_N, num_warps)
    (4096, 4096, 16),
    (8192, 8192, 16),
    (32768, 16384, 32),
)
# Longer rows: a program has as many threads as it can, and keeps as much of a row as
# leaves registers for the rest, to which the elements around its vectors may belong.
LONG_NUM_WARPS = 32
LONG_TILES = {2: (32768, 4), 4: (32768, 2)}  # KEPT, STEPS by the bytes of an element
LONG_TILE_WITH_EDGES = (16384, 2)
BACKWARD_LONG_TILE = (8192, 2)
BACKWARD_LONG_TILES_WITH_EDGES = {2: (4096, 2), 4: (8192, 2)}
NUM_SMS = 132  # of an H200


def long_block_n(element_size: int, divisibility: int) -> int:
    """The columns of 1024 threads: of each what it can load at a time, or two."""
    return 1024 * max(2, min(divisibility, 16 // element_size))


def softmax(
    out: Tensor,
    x: Tensor,
    n_rows: int,
    n_cols: int,
    rows_per_batch: int,
    x_stride_batch: int,
    x_stride_row: int,
) -> None:
    """Launches the kernel for rows of this length on the current device and stream."""
    arguments = (out, x, n_rows, n_cols, rows_per_batch, x_stride_batch, x_stride_row)
    divisibility = math.gcd(n_cols, x_stride_batch, x_stride_row, 16)
    if tile := tile_for(TILES, n_cols):
        block_m, num_warps = tile
        softmax_kernel[(triton.cdiv(n_rows, block_m),)](
            *arguments,
            BLOCK_M=block_m,
            BLOCK_N=max(16, triton.next_power_of_2(n_cols)),
            DIVISIBILITY=divisibility,
            num_warps=num_warps,
            enable_fp_fusion=True,
        )
        return
    vec_size = VEC_BYTES // out.element_size()
    has_gaps = x_stride_row != n_cols or rows_per_batch != n_rows
    has_edges = divisibility % vec_size != 0 and not has_gaps
    if tile := tile_for(CACHED_TILES[out.element_size()], n_cols):
        (block_n, num_warps), kept, steps = tile, 0, 1
    else:
        num_warps = LONG_NUM_WARPS
        kept, steps = (
            LONG_TILE_WITH_EDGES if has_edges else LONG_TILES[out.element_size()]
        )
        divisor = vec_size if has_edges else divisibility
        block_n = long_block_n(out.element_size(), divisor)
    softmax_long_kernel[(n_rows,)](
        *arguments,
        KEPT=kept,
        STEPS=steps,
        BLOCK_N=block_n,
        DIVISIBILITY=divisibility,
        VEC_SIZE=vec_size if has_edges else 0,
        num_warps=num_warps,
        num_stages=1,
        enable_fp_fusion=True,
    )


def softmax_backward(
    out: Tensor,
    grad: Tensor,
    y: Tensor,
    n_rows: int,
    n_cols: int,
    rows_per_batch: int,
    grad_stride_batch: int,
    grad_stride_row: int,
    y_stride_batch: int,
    y_stride_row: int,
) -> None:
    """Launches the kernel for rows of this length on the current device and stream."""
    strides = (grad_stride_batch, grad_stride_row, y_stride_batch, y_stride_row)
    arguments = (out, grad, y, n_rows, n_cols, rows_per_batch, *strides)
    divisibility = math.gcd(n_cols, *strides, 16)
    if tile := tile_for(BACKWARD_TILES, n_cols):
        block_m, num_warps = tile
        softmax_backward_kernel[(triton.cdiv(n_rows, block_m),)](
            *arguments,
            BLOCK_M=block_m,
            BLOCK_N=max(16, triton.next_power_of_2(n_cols)),
            DIVISIBILITY=divisibility,
            num_warps=num_warps,
            enable_fp_fusion=True,
        )
        return
    vec_size = VEC_BYTES // out.element_size()
    have_gaps = (
        not grad_stride_row == y_stride_row == n_cols or rows_per_batch != n_rows
    )
    has_edges = divisibility % vec_size != 0 and not have_gaps
    if tile := tile_for(BACKWARD_CACHED_TILES, n_cols):
        (block_n, num_warps), kept, steps = tile, 0, 1
        n_programs = n_rows
    else:
        num_warps, (kept, steps) = LONG_NUM_WARPS, BACKWARD_LONG_TILE
        if has_edges:
            kept, steps = BACKWARD_LONG_TILES_WITH_EDGES[out.element_size()]
        divisor = vec_size if has_edges else divisibility
        block_n = long_block_n(out.element_size(), divisor)
        n_programs = min(n_rows, NUM_SMS)
    softmax_backward_long_kernel[(n_programs,)](
        *arguments,
        KEPT=kept,
        STEPS=steps,
        BLOCK_N=block_n,
        DIVISIBILITY=divisibility,
        VEC_SIZE=vec_size if has_edges else 0,
        num_warps=num_warps,
        num_stages=1,
        enable_fp_fusion=True,
    )
