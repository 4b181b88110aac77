"""Sums over one dimension of a tensor.

  out[o, i] = sum over r of x[o, r, i]

Layout   out: (n_outer, n_inner), contiguous. x: (n_outer, n_reduced, n_inner) with any
         three strides. workspace: float32, n_splits for each element of out.
Traffic  reads every element once and writes next to nothing: the ceiling is the
         bandwidth of a read.
Limits   accumulates in float32 and rounds once. The order of the additions depends on
         shape, strides and alignment alone, so every run gives the same bits.
Mirror   csrc/sum/sum.cu
Source   Harris 2007, "Optimizing parallel reduction in CUDA"
"""

import math

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.vec import VEC_BYTES, known_multiple

# The tiles of the next steps are on their way to shared memory while one is added up:
# on an H200, without that, sums of float16 and bfloat16 take up to half as long again.
NUM_STAGES = tl.constexpr(3)
NUM_WARPS = 4
# A tile, and what it takes of a row where there are many; of elements that are loaded
# one by one, half as much is faster.
TILE_BYTES, NARROW_TILE_BYTES = 16384, 8192
WIDTH_BYTES, NARROW_WIDTH_BYTES = 2048, 1024
MIN_STEPS = 16
NUM_SMS = 132  # of an H200


@triton.jit
def sum_rows_kernel(
    out_ptr,  # (n_outer * n_inner, n_splits)
    x_ptr,  # (n_outer, n_reduced, n_inner)
    n_outer,
    n_reduced,
    n_inner,
    x_stride_outer,
    x_stride_reduced,
    x_stride_inner,
    split_size,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
    VEC_SIZE: tl.constexpr,
    EDGE_SIZE: tl.constexpr,
):
    """The reduced dimension is contiguous, or at least steps less than the others."""
    # -- tile: a program owns one split of one long row or of several short ones
    x_stride_outer = known_multiple(x_stride_outer, DIVISIBILITY)
    x_stride_inner = known_multiple(x_stride_inner, DIVISIBILITY)
    split, n_splits = tl.program_id(1), tl.num_programs(1)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    is_row = rows < tl.cast(n_outer, tl.int64) * n_inner
    split_start = split.to(tl.int64) * split_size
    n_cols = tl.minimum(n_reduced - split_start, split_size)
    # Most tensors have one outer index, and are spared the division.
    if n_outer == 1:
        row_start = rows * x_stride_inner
    else:
        row_start = rows // n_inner * x_stride_outer + rows % n_inner * x_stride_inner
    row_start += split_start * x_stride_reduced

    # -- accumulate: first, of rows that begin anywhere, the few elements before and
    # behind the vectors, which begin at multiples of 16 bytes
    if EDGE_SIZE > 0:
        cols = tl.arange(0, EDGE_SIZE)[None, :]
        first_vec = tl.cdiv(row_start, VEC_SIZE) * VEC_SIZE
        n_head = tl.minimum(first_vec - row_start, n_cols)
        n_body = (n_cols - n_head) // VEC_SIZE * VEC_SIZE
        tail_start = first_vec + n_body
        n_tail = n_cols - n_head - n_body
        head_mask = is_row & (cols < n_head)
        tail_mask = is_row & (cols < n_tail)
        head = tl.load(x_ptr + row_start + cols, mask=head_mask, other=0.0)
        tail = tl.load(x_ptr + tail_start + cols, mask=tail_mask, other=0.0)
        edges = head.to(tl.float32) + tail.to(tl.float32)
        row_start = first_vec
    else:
        n_body = known_multiple(n_cols, DIVISIBILITY)
    # Up to there every row has vectors, wherever it begins.
    n_edges = 2 * VEC_SIZE if EDGE_SIZE > 0 else 0
    n_whole = tl.maximum(n_cols - n_edges, 0) // BLOCK_N * BLOCK_N

    # Each element of a tile has a sum of its own.
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    cols = tl.arange(0, BLOCK_N)[None, :]
    x_ptr += row_start
    for start in tl.range(0, n_whole, BLOCK_N, num_stages=NUM_STAGES):
        offsets = (start + cols) * x_stride_reduced
        sums += tl.load(x_ptr + offsets, mask=is_row, other=0.0).to(tl.float32)
    for start in range(n_whole, n_cols, BLOCK_N):
        offsets = (start + cols) * x_stride_reduced
        mask = is_row & (cols < n_body - start)
        sums += tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    # -- reduce: the sums of a row
    sum = tl.sum(sums, axis=1, keep_dims=True)
    if EDGE_SIZE > 0:
        sum += tl.sum(edges, axis=1, keep_dims=True)

    # -- store: rounded once
    out = sum.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + rows * n_splits + split, out, mask=is_row)


@triton.jit
def sum_columns_kernel(
    out_ptr,  # (n_splits, n_outer, n_inner)
    x_ptr,  # (n_outer, n_reduced, n_inner)
    n_outer,
    n_reduced,
    n_inner,
    x_stride_outer,
    x_stride_reduced,
    x_stride_inner,
    split_size,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    """The inner dimension is contiguous, or at least steps less than the reduced."""
    # -- tile: a program owns neighbouring columns of one outer index, and one split
    n_inner = known_multiple(n_inner, DIVISIBILITY)
    x_stride_outer = known_multiple(x_stride_outer, DIVISIBILITY)
    x_stride_reduced = known_multiple(x_stride_reduced, DIVISIBILITY)
    n_tiles = tl.cdiv(n_inner, BLOCK_N)
    outer = tl.program_id(0).to(tl.int64) // n_tiles
    tile = tl.program_id(0).to(tl.int64) % n_tiles
    cols = tile * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    is_col = cols < n_inner
    split = tl.program_id(1).to(tl.int64)
    split_start = split * split_size
    n_rows = tl.minimum(n_reduced - split_start, split_size)
    x_ptr += outer * x_stride_outer + split_start * x_stride_reduced
    x_ptr += cols * x_stride_inner
    out_ptr += (split * n_outer + outer) * n_inner

    # -- accumulate: each element of a tile has a sum of its own
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    rows = tl.arange(0, BLOCK_M)[:, None]
    n_whole = n_rows // BLOCK_M * BLOCK_M
    for start in tl.range(0, n_whole, BLOCK_M, num_stages=NUM_STAGES):
        offsets = (start + rows) * x_stride_reduced
        sums += tl.load(x_ptr + offsets, mask=is_col, other=0.0).to(tl.float32)
    if n_whole < n_rows:
        offsets = (n_whole + rows) * x_stride_reduced
        mask = (rows < n_rows - n_whole) & is_col
        sums += tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    # -- reduce: the sums of a column
    sum = tl.sum(sums, axis=0, keep_dims=True)

    # -- store: rounded once
    tl.store(out_ptr + cols, sum.to(out_ptr.dtype.element_ty), mask=is_col)


def launch_rows(
    out: Tensor,
    x: Tensor,
    n_outer: int,
    n_reduced: int,
    n_inner: int,
    x_stride_outer: int,
    x_stride_reduced: int,
    x_stride_inner: int,
    n_splits: int,
    split_size: int,
) -> None:
    """Short rows take few columns, so that a program holds several."""
    n_cols, num_warps = min(n_reduced, split_size), NUM_WARPS
    if n_cols <= 2048:
        # The widest tile of which no more than an eighth is idle.
        fitting = (n for n in (512, 256, 128, 64) if 8 * (-n_cols % n) <= n_cols)
        block_n = next(fitting, 32)
        block_m = 4096 // block_n
        if block_n <= 128:
            block_m = TILE_BYTES // x.element_size() // 128
    elif 0 < n_cols % 2048 <= 1024:  # more than half of the last tile would be idle
        block_m, block_n, num_warps = 1, 1024, NUM_WARPS // 2
    else:
        block_m, block_n = 1, 2048
    divisibility = math.gcd(n_reduced, x_stride_outer, x_stride_inner, 16)
    vec_size = VEC_BYTES // x.element_size()
    has_edges = x_stride_reduced == 1 and divisibility % vec_size != 0
    edge_size = max(vec_size, num_warps * 32 // block_m)  # a thread for each element
    sum_rows_kernel[(triton.cdiv(n_outer * n_inner, block_m), n_splits)](
        out,
        x,
        n_outer,
        n_reduced,
        n_inner,
        x_stride_outer,
        x_stride_reduced,
        x_stride_inner,
        split_size,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        DIVISIBILITY=divisibility,
        VEC_SIZE=vec_size,
        EDGE_SIZE=edge_size if has_edges else 0,
        num_warps=num_warps,
        enable_fp_fusion=True,
    )


def launch_columns(
    out: Tensor,
    x: Tensor,
    n_outer: int,
    n_reduced: int,
    n_inner: int,
    x_stride_outer: int,
    x_stride_reduced: int,
    x_stride_inner: int,
    n_splits: int,
    split_size: int,
) -> None:
    """Reads WIDTH_BYTES of a row at a time, or NARROW_WIDTH_BYTES.

    Less where that leaves no block for each multiprocessor of an H200; more where there
    are too few rows for 16 steps, whose sums would have to be added up in the end.
    """
    element_size, n_rows = x.element_size(), min(n_reduced, split_size)
    divisibility = math.gcd(n_inner, x_stride_outer, x_stride_reduced, 16)
    has_vectors = x_stride_inner == 1 and divisibility * element_size >= VEC_BYTES
    tile_size = (TILE_BYTES if has_vectors else NARROW_TILE_BYTES) // element_size
    width = (WIDTH_BYTES if has_vectors else NARROW_WIDTH_BYTES) // element_size
    block_n = 64 // element_size
    while block_n < n_inner and block_n < tile_size:
        too_few_rows = block_n * n_rows < MIN_STEPS * tile_size
        n_blocks = n_outer * triton.cdiv(n_inner, 2 * block_n) * n_splits
        if n_blocks < NUM_SMS or (block_n >= width and not too_few_rows):
            break
        block_n *= 2
    sum_columns_kernel[(n_outer * triton.cdiv(n_inner, block_n), n_splits)](
        out,
        x,
        n_outer,
        n_reduced,
        n_inner,
        x_stride_outer,
        x_stride_reduced,
        x_stride_inner,
        split_size,
        BLOCK_M=tile_size // block_n,
        BLOCK_N=block_n,
        DIVISIBILITY=divisibility,
        num_warps=NUM_WARPS,
        enable_fp_fusion=True,
    )


def sum(
    out: Tensor,
    x: Tensor,
    workspace: Tensor,
    n_outer: int,
    n_reduced: int,
    n_inner: int,
    x_stride_outer: int,
    x_stride_reduced: int,
    x_stride_inner: int,
    by_rows: bool,
    n_splits: int,
    split_size: int,
    rung: int,
) -> None:
    """Launches a kernel on the current device and stream, once or twice.

    Where there are too few outputs to fill a GPU, n_splits programs share each of them:
    they leave their sums in the workspace, and a second launch adds those.
    """
    launch = launch_rows if by_rows else launch_columns
    launch(
        out if n_splits == 1 else workspace,
        x,
        n_outer,
        n_reduced,
        n_inner,
        x_stride_outer,
        x_stride_reduced,
        x_stride_inner,
        n_splits,
        split_size,
    )
    if n_splits == 1:
        return
    # (n_outer * n_inner, n_splits) by rows, else (n_splits, n_outer * n_inner)
    n_outputs = n_outer * n_inner
    launch(
        out,
        workspace,
        1,
        n_splits,
        n_outputs,
        0,
        1 if by_rows else n_outputs,
        n_splits if by_rows else 1,
        1,
        n_splits,
    )
