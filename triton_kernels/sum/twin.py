"""The twin: a program reads neighbouring columns of several rows, and walks down them.

It is for columns: the inner dimension is contiguous, or steps less than the reduced
one.
"""

import triton
import triton.language as tl

from triton_kernels.common.vec import known_multiple

# The tiles of the next steps are on their way to shared memory while one is added up:
# on an H200, without that, sums of float16 and bfloat16 take up to half as long again.
NUM_STAGES = tl.constexpr(3)


@triton.jit
def sum_kernel(
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
