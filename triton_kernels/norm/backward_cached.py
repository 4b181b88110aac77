"""A row too long for registers beside its sums, but not for the L1.

One pass over a row finds its means; the second reads it again, out of the L1, and
writes the gradient of x. The sums over rows alone stay in registers.
"""

import triton
import triton.language as tl

from triton_kernels.common.rows import row_offset
from triton_kernels.common.vec import known_multiple
from triton_kernels.norm.long import load_columns
from triton_kernels.norm.rows import load_weight, mean_of


@triton.jit
def norm_backward_cached_kernel(
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
    BLOCK_N: tl.constexpr,
    N_TILES: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    # -- tile: a program owns every num_programs-th row, in N_TILES tiles
    HAS_MEAN: tl.constexpr = mean_ptr is not None
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    cols = tl.arange(0, BLOCK_N)
    weight_sums, bias_sums = (), ()
    for _ in tl.static_range(N_TILES):
        weight_sums += (tl.zeros([BLOCK_N], tl.float32),)
        bias_sums += (tl.zeros([BLOCK_N], tl.float32),)

    for row in range(tl.program_id(0).to(tl.int64), n_rows, tl.num_programs(0)):
        # -- reduce: over the row, which the L1 is asked to keep
        grad_row_ptr = grad_ptr + row_offset(
            row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
        )
        x_row_ptr = x_ptr + row_offset(
            row, n_rows, rows_per_batch, x_stride_batch, x_stride_row
        )
        mean = 0.0
        if HAS_MEAN:
            mean = tl.load(mean_ptr + row)
        rstd = tl.load(rstd_ptr + row)
        g_sums = tl.zeros([BLOCK_N], tl.float32)
        product_sums = tl.zeros([BLOCK_N], tl.float32)
        for i in tl.static_range(N_TILES):
            tile_cols = i * BLOCK_N + cols
            grad = load_columns(grad_row_ptr, tile_cols, n_cols, "evict_last")
            x = load_columns(x_row_ptr, tile_cols, n_cols, "evict_last")
            g = grad * load_weight(weight_ptr, tile_cols, tile_cols < n_cols, 1.0)
            product_sums += g * ((x - mean) * rstd)
            g_sums += g
        mean_product, mean_g = mean_of(tl.sum(product_sums, axis=0), n_cols), 0.0
        if HAS_MEAN:
            mean_g = mean_of(tl.sum(g_sums, axis=0), n_cols)

        # -- store: the second read, which also adds to the sums over the rows so far
        new_weight_sums, new_bias_sums = (), ()
        for i in tl.static_range(N_TILES):
            tile_cols = i * BLOCK_N + cols
            grad = load_columns(grad_row_ptr, tile_cols, n_cols, "evict_first")
            x = load_columns(x_row_ptr, tile_cols, n_cols, "evict_first")
            x_hat = (x - mean) * rstd
            new_weight_sums += (weight_sums[i] + grad * x_hat,)
            new_bias_sums += (bias_sums[i] + grad,)
            g = grad * load_weight(weight_ptr, tile_cols, tile_cols < n_cols, 1.0)
            grad_x = rstd * (g - mean_g - x_hat * mean_product)
            out_ptr = grad_x_ptr + row * n_cols + tile_cols
            tl.store(out_ptr, grad_x.to(x_ptr.dtype.element_ty), tile_cols < n_cols)
        weight_sums, bias_sums = new_weight_sums, new_bias_sums

    # -- partials: for the last launch to add
    partials_ptr += tl.program_id(0).to(tl.int64) * n_cols
    bias_offset = tl.num_programs(0).to(tl.int64) * n_cols
    for i in tl.static_range(N_TILES):
        tile_cols = i * BLOCK_N + cols
        tl.store(partials_ptr + tile_cols, weight_sums[i], mask=tile_cols < n_cols)
        if HAS_MEAN:
            bias_ptr = partials_ptr + bias_offset
            tl.store(bias_ptr + tile_cols, bias_sums[i], mask=tile_cols < n_cols)
