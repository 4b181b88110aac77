"""The twin: a program walks over many rows, each of which it holds in registers.

It adds up what they contribute to the gradients of weight and bias. The next rows are
on their way to shared memory meanwhile. A row is a tuple of tiles, which need not be a
power of two together, as one has to be.
"""

import triton
import triton.language as tl

from triton_kernels.common.rows import row_offset
from triton_kernels.common.tile import load_row, store_row
from triton_kernels.common.vec import known_multiple
from triton_kernels.norm.rows import load_weight, row_mean


@triton.jit
def norm_backward_kernel(
    grad_x_ptr,  # (n_rows, n_cols)
    partials_ptr,  # (1 or 2, n_partials, n_cols)
    grad_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
    mean_ptr,  # (n_rows), or None
    rstd_ptr,  # (n_rows)
    weight_ptr,  # (n_cols), or None
    n_rows,
    n_cols,
    rows_per_batch,
    grad_stride_batch,
    grad_stride_row,
    x_stride_batch,
    x_stride_row,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    N_TILES: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    # -- tile: a program owns every num_programs-th row, or group of short rows
    HAS_MEAN: tl.constexpr = mean_ptr is not None
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    first_row = tl.program_id(0).to(tl.int64) * BLOCK_M
    row_step = tl.num_programs(0).to(tl.int64) * BLOCK_M
    cols = tl.arange(0, BLOCK_N)

    # -- load: the weight, in one dimension: a tile of one row would spread over all the
    # threads, and the compiler would convert the others to its layout at every step
    weight, weight_sums, bias_sums = (), (), ()
    for i in tl.static_range(N_TILES):
        tile_cols = i * BLOCK_N + cols
        loaded = load_weight(weight_ptr, tile_cols, tile_cols < n_cols, 1.0)
        weight += (loaded[None, :],)
        weight_sums += (tl.zeros([BLOCK_M, BLOCK_N], tl.float32),)
        if HAS_MEAN:
            bias_sums += (tl.zeros([BLOCK_M, BLOCK_N], tl.float32),)
    cols = cols[None, :]

    for start in tl.range(first_row, n_rows, row_step, num_stages=NUM_STAGES):
        # -- next: the compiler has these loads on their way to shared memory some steps
        # ahead; rows and columns past the end become 0, which adds nothing
        rows = start + tl.arange(0, BLOCK_M)[:, None]
        is_row = rows < n_rows
        grad_start = row_offset(
            rows, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
        )
        x_start = row_offset(rows, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
        grad = load_row(grad_ptr + grad_start, cols, is_row, n_cols, N_TILES)
        x = load_row(x_ptr + x_start, cols, is_row, n_cols, N_TILES)
        mean = 0.0
        if HAS_MEAN:
            mean = tl.load(mean_ptr + rows, mask=is_row, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=is_row, other=0.0)

        # -- reduce: over the row, and over the rows so far
        new_weight_sums, new_bias_sums, g, x_hat, product = (), (), (), (), ()
        for i in tl.static_range(N_TILES):
            x_hat += ((x[i] - mean) * rstd,)
            g += (grad[i] * weight[i],)
            product += (g[i] * x_hat[i],)
            new_weight_sums += (weight_sums[i] + grad[i] * x_hat[i],)
            if HAS_MEAN:
                new_bias_sums += (bias_sums[i] + grad[i],)
        weight_sums, bias_sums = new_weight_sums, new_bias_sums
        mean_product, mean_g = row_mean(product, n_cols, N_TILES), 0.0
        if HAS_MEAN:
            mean_g = row_mean(g, n_cols, N_TILES)

        # -- store: rounded once
        grad_x = ()
        for i in tl.static_range(N_TILES):
            grad_x += (rstd * (g[i] - mean_g - x_hat[i] * mean_product),)
        store_row(grad_x_ptr + rows * n_cols, grad_x, cols, is_row, n_cols, N_TILES)

    # -- partials: for the last launch to add
    partials_ptr += tl.program_id(0).to(tl.int64) * n_cols
    bias_offset = tl.num_programs(0).to(tl.int64) * n_cols
    for i in tl.static_range(N_TILES):
        tile_cols = i * BLOCK_N + cols
        mask = tile_cols < n_cols
        sums = tl.sum(weight_sums[i], axis=0, keep_dims=True)
        tl.store(partials_ptr + tile_cols, sums, mask=mask)
        if HAS_MEAN:
            sums = tl.sum(bias_sums[i], axis=0, keep_dims=True)
            tl.store(partials_ptr + bias_offset + tile_cols, sums, mask=mask)
