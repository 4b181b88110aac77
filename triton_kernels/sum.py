"""Sums over one dimension of a tensor.

  out[o, i] = sum over r of x[o, r, i]

Layout   out: (n_outer, n_inner), contiguous. x: (n_outer, n_reduced, n_inner) with any
         three strides. workspace: float32, n_splits for each element of out.
Traffic  reads every element once and writes next to nothing: the ceiling is the
         bandwidth of a read.
Limits   accumulates in float32 and rounds once. The order of the additions depends on
         shape, strides and alignment alone, so every run gives the same bits.
Mirror   csrc/sum.cu
Source   Harris 2007, "Optimizing parallel reduction in CUDA"
"""

import math

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.vec import known_multiple

# 128 threads of 32 elements each. The tiles of the next steps are on their way to
# shared memory while one is added up: on an H200, without that, sums of float16 and
# bfloat16 take up to half as long again.
BLOCK_SIZE = 4096
NUM_WARPS = 4
NUM_STAGES = tl.constexpr(3)
NUM_SMS = 132  # of an H200
ROW_BYTES = 1024  # of a row that a tile of columns takes, where there are many rows
MIN_STEPS = 16


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
        row_offset = rows * x_stride_inner
    else:
        row_offset = rows // n_inner * x_stride_outer + rows % n_inner * x_stride_inner
    x_ptr += row_offset + split_start * x_stride_reduced

    # -- accumulate: each element of a tile has a sum of its own
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    cols = tl.arange(0, BLOCK_N)[None, :]
    n_whole = n_cols // BLOCK_N * BLOCK_N
    for start in tl.range(0, n_whole, BLOCK_N, num_stages=NUM_STAGES):
        offsets = (start + cols) * x_stride_reduced
        sums += tl.load(x_ptr + offsets, mask=is_row, other=0.0).to(tl.float32)
    if n_whole < n_cols:
        n_cols = known_multiple(n_cols, DIVISIBILITY)
        offsets = (n_whole + cols) * x_stride_reduced
        mask = is_row & (cols < n_cols - n_whole)
        sums += tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    # -- reduce: the sums of a row
    sum = tl.sum(sums, axis=1, keep_dims=True)

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
    n_cols = min(n_reduced, split_size)
    block_n = 128 if n_cols <= 128 else 512 if n_cols <= 2048 else BLOCK_SIZE
    block_m = BLOCK_SIZE // block_n
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
        DIVISIBILITY=math.gcd(n_reduced, x_stride_outer, x_stride_inner, 16),
        num_warps=NUM_WARPS,
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
    """Reads up to 1024 bytes of a row at a time.

    Less where that leaves no block for each multiprocessor of an H200; more where there
    are too few rows for 16 steps, whose sums would have to be added up in the end.
    """
    n_rows = min(n_reduced, split_size)
    block_n = 64 // x.element_size()
    while block_n < n_inner and block_n < BLOCK_SIZE:
        too_few_rows = block_n * n_rows < MIN_STEPS * BLOCK_SIZE
        n_blocks = n_outer * triton.cdiv(n_inner, 2 * block_n) * n_splits
        is_wide = block_n * x.element_size() >= ROW_BYTES
        if n_blocks < NUM_SMS or (is_wide and not too_few_rows):
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
        BLOCK_M=BLOCK_SIZE // block_n,
        BLOCK_N=block_n,
        DIVISIBILITY=math.gcd(n_inner, x_stride_outer, x_stride_reduced, 16),
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
