"""The first rung: a program owns a row, and walks over it three times."""

import triton
import triton.language as tl

from triton_kernels.common.rows import row_offset
from triton_kernels.norm.rows import load_weight


@triton.jit
def layer_norm_first_kernel(
    out_ptr,  # (n_rows, n_cols)
    mean_ptr,  # (n_rows)
    rstd_ptr,  # (n_rows)
    x_ptr,  # (n_rows, n_cols)
    weight_ptr,  # (n_cols), or None
    bias_ptr,  # (n_cols), or None
    n_rows,
    n_cols,
    rows_per_batch,
    x_stride_batch,
    x_stride_row,
    eps,
    BLOCK_N: tl.constexpr,
):
    # -- tile: a program owns a row, in tiles of BLOCK_N columns
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
    out_ptr += row * n_cols
    cols = tl.arange(0, BLOCK_N).to(tl.int64)

    # -- mean: of the row
    sums = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, tl.cast(n_cols, tl.int64), BLOCK_N):
        mask = start + cols < n_cols
        sums += tl.load(x_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(sums, axis=0) / n_cols

    # -- variance: of the differences, which a mean far from zero costs no digits
    square_sums = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, tl.cast(n_cols, tl.int64), BLOCK_N):
        mask = start + cols < n_cols
        x = tl.load(x_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        difference = tl.where(mask, x - mean, 0.0)
        square_sums += difference * difference
    rstd = tl.rsqrt(tl.sum(square_sums, axis=0) / n_cols + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    # -- store: rounded once
    for start in range(0, tl.cast(n_cols, tl.int64), BLOCK_N):
        mask = start + cols < n_cols
        x = tl.load(x_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        weight = load_weight(weight_ptr, start + cols, mask, 1.0)
        bias = load_weight(bias_ptr, start + cols, mask, 0.0)
        out = (x - mean) * rstd * weight + bias
        tl.store(out_ptr + start + cols, out.to(out_ptr.dtype.element_ty), mask=mask)
