"""Layer normalisation of every row of a matrix, and its backward.

  layer_norm:          out[row, :] = x_hat[row, :] * weight + bias,
                       x_hat[row, :] = (x[row, :] - mean[row]) * rstd[row],
                       rstd[row] = 1 / sqrt(variance(x[row, :]) + eps)
  layer_norm_backward: grad_x[row, :] = rstd[row] * (g - m - x_hat[row, :] * p),
                       g = grad[row, :] * weight, m = mean(g),
                       p = mean(g * x_hat[row, :]); over all rows
                       grad_weight = sum of grad[row, :] * x_hat[row, :],
                       grad_bias = sum of grad[row, :]

Layout   out, grad_x: (n_rows, n_cols), contiguous. x, grad: columns contiguous; row r
         of x begins at
         (r / rows_per_batch) * x_stride_batch + (r % rows_per_batch) * x_stride_row.
         mean, rstd: float32, one for each row. weight, bias: contiguous, or None for
         ones and zeros.
Traffic  reads and writes every element once: a row of up to 16384 columns stays in
         registers or, where that is faster, is read again out of the L1 cache; so is a
         longer one, as long as those that a multiprocessor works on fit into it (one
         row of about 50000 float32).
         The backward holds two rows of up to 8192 columns, and two sums for each
         column; beyond that a row is read twice.
Limits   accumulates in float32. The variance is that of differences from a mean, of
         which the rounding is taken back; a mean far from zero costs it no digits.
         Gradients of weights are added in an order that depends on the shape and the
         dtype alone.
Mirror   csrc/layer_norm/layer_norm.cu, where rows of float32 of 2049 to 4096 and of 16385 to 32768
         columns stay in registers: here it is faster to read them again
Source   Ba, Kiros & Hinton 2016, arXiv:1607.06450; Chan, Golub & LeVeque 1983,
         "Algorithms for computing the sample variance" (the corrected two-pass one)
"""

import math
import sys

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.norms import (
    BACKWARD_TILES,
    COLUMNS_AT_ONCE,
    COLUMNS_BLOCK_N,
    COLUMNS_NUM_WARPS,
    ROWS_BLOCK_N,
    ROWS_NUM_WARPS,
    launch_sum_partials,
    load_weight,
    mean_of,
)
from triton_kernels.common.rows import row_offset, tile_for
from triton_kernels.common.vec import known_multiple

# The rows of a tile, the columns of one at most, the warps that share it, and whether
# a row stays in registers, by the bytes of an element and the longest row that fits:
# short rows share a program, and a long row is several tiles. A warp with a row to
# itself waits for no other. Where rows are read again, few programs share a
# multiprocessor, and so their rows the L1 cache; the longest do not fit anyway.
TILES = {  # (most columns, BLOCK_M, most of BLOCK_N, num_warps, in registers)
    4: (
        (64, 32, 64, 4, True),
        (512, 8, 64, 4, True),
        (2048, 1, 1024, 4, True),
        (4096, 1, 4096, 8, False),
        (8192, 1, 2048, 8, True),
        (16384, 1, 2048, 16, True),
        (32768, 1, 32768, 32, False),
        (65536, 1, 8192, 32, False),
        (sys.maxsize, 1, 4096, 16, False),
    ),
    2: (
        (64, 32, 64, 4, True),
        (256, 16, 64, 4, True),
        (768, 8, 128, 4, True),
        (1024, 1, 1024, 1, True),
        (2048, 1, 512, 2, True),
        (8192, 1, 1024, 4, True),
        (12288, 1, 2048, 8, True),
        (16384, 1, 4096, 16, True),
        (32768, 1, 4096, 16, False),
        (65536, 1, 8192, 32, False),
        (131072, 1, 16384, 32, False),
        (sys.maxsize, 1, 16384, 16, False),
    ),
}


@triton.jit
def variance(mean, mean_square):
    """The variance from the mean of differences and that of their squares.

    It may not come out below 0, but NaN stays NaN, and infinities become it.
    """
    result = mean_square - mean * mean
    return tl.where(result < 0.0, 0.0, result)


@triton.jit
def layer_norm_kernel(
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    N_TILES: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    """A row in registers: a program holds BLOCK_M rows of N_TILES tiles of columns.

    Together the tiles need not be a power of two, as one has to be.
    """
    # -- tile: a program owns one row or several short ones
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.arange(0, BLOCK_N)[None, :]
    is_row = rows < n_rows
    x_ptr += row_offset(rows, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
    out_ptr += rows * n_cols

    # -- load: columns past the end become 0, which adds nothing
    xs = ()
    for tile in tl.static_range(N_TILES):
        tile_cols = tile * BLOCK_N + cols
        mask = is_row & (tile_cols < n_cols)
        xs += (tl.load(x_ptr + tile_cols, mask=mask, other=0.0).to(tl.float32),)

    # -- mean
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for tile in tl.static_range(N_TILES):
        sums += xs[tile]
    mean = mean_of(tl.sum(sums, axis=1, keep_dims=True), n_cols)

    # -- variance: of the differences, which replace x in its registers; their own mean
    # is what the rounding of the mean has left
    differences = ()
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    square_sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for tile in tl.static_range(N_TILES):
        mask = is_row & (tile * BLOCK_N + cols < n_cols)
        difference = tl.where(mask, xs[tile] - mean, 0.0)
        differences += (difference,)
        sums += difference
        square_sums += difference * difference
    correction = mean_of(tl.sum(sums, axis=1, keep_dims=True), n_cols)
    mean_square = mean_of(tl.sum(square_sums, axis=1, keep_dims=True), n_cols)
    rstd = tl.rsqrt(variance(correction, mean_square) + eps)
    tl.store(mean_ptr + rows, mean + correction, mask=is_row)
    tl.store(rstd_ptr + rows, rstd, mask=is_row)

    # -- store: weight and bias are read only now, when they need no registers for
    # long; all rows share them, so that they come out of a cache
    for tile in tl.static_range(N_TILES):
        tile_cols = tile * BLOCK_N + cols
        weight = load_weight(weight_ptr, tile_cols, tile_cols < n_cols, 1.0)
        bias = load_weight(bias_ptr, tile_cols, tile_cols < n_cols, 0.0)
        out = (differences[tile] - correction) * rstd * weight + bias
        tl.store(
            out_ptr + tile_cols,
            out.to(out_ptr.dtype.element_ty),
            mask=is_row & (tile_cols < n_cols),
        )


@triton.jit
def layer_norm_long_kernel(
    out_ptr,  # (n_rows, n_cols)
    mean_ptr,  # (n_rows)
    rstd_ptr,  # (n_rows)
    x_ptr,  # (n_rows, n_cols)
    weight_ptr,  # (n_cols), or None
    bias_ptr,  # (n_cols), or None
    n_rows,
    n_cols: tl.constexpr,
    rows_per_batch,
    x_stride_batch,
    x_stride_row,
    eps,
    BLOCK_N: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    """A longer row: a first pass over it finds the statistics, a second writes out.

    It is compiled for each number of columns: knowing how many tiles there are, the
    compiler can have the loads of all of them under way together. What the second pass
    reads, the first has asked the cache to keep.
    """
    # -- tile: a program owns one row and walks over it in tiles of BLOCK_N columns;
    # of an odd row a thread loads single elements, and so it does of the weight
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    row = tl.program_id(0).to(tl.int64)
    cols = tl.multiple_of(tl.arange(0, BLOCK_N), DIVISIBILITY)
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
    out_ptr += row * n_cols

    # -- mean: of the first tile, which is good enough for the variance: if it holds one
    # in k of the columns, the variance is at least 1 / k of the squared distance to it,
    # so that no more than a factor of 1 + k is lost below
    n_first: tl.constexpr = min(n_cols, BLOCK_N)
    mask = cols < n_first
    x = tl.load(x_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(
        tl.float32
    )
    mean = mean_of(tl.sum(x, axis=0), n_first)

    # -- variance: of the differences; their own mean is what is missing of the row's
    sums = tl.where(mask, x - mean, 0.0)
    square_sums = sums * sums
    n_cols = tl.cast(n_cols, tl.int64)  # or the last step could overflow
    for start in range(BLOCK_N, n_cols, BLOCK_N):
        mask = cols < n_cols - start
        x = tl.load(
            x_ptr + start + cols, mask=mask, other=0.0, eviction_policy="evict_last"
        ).to(tl.float32)
        difference = tl.where(mask, x - mean, 0.0)
        sums += difference
        square_sums += difference * difference
    correction = mean_of(tl.sum(sums, axis=0), n_cols)
    mean_square = mean_of(tl.sum(square_sums, axis=0), n_cols)
    rstd = tl.rsqrt(variance(correction, mean_square) + eps)
    tl.store(mean_ptr + row, mean + correction)
    tl.store(rstd_ptr + row, rstd)

    # -- store: the second pass
    for start in range(0, n_cols, BLOCK_N):
        mask = cols < n_cols - start
        x = tl.load(
            x_ptr + start + cols, mask=mask, other=0.0, eviction_policy="evict_first"
        ).to(tl.float32)
        weight = load_weight(weight_ptr, start + cols, mask, 1.0)
        bias = load_weight(bias_ptr, start + cols, mask, 0.0)
        out = (x - mean - correction) * rstd * weight + bias
        tl.store(out_ptr + start + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def layer_norm_backward_kernel(
    grad_x_ptr,  # (n_rows, n_cols)
    partials_ptr,  # (2, n_partials, n_cols)
    grad_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
    mean_ptr,  # (n_rows)
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
    """Rows in registers, and the next ones on their way to shared memory.

    A program walks over many rows, and adds up for its columns what they contribute to
    the gradients of weight and bias. A long row is a tuple of tiles: together they need
    not be a power of two, as one has to be.
    """
    # -- tile: a program owns every num_programs-th row, or group of short rows
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    first_row = tl.program_id(0).to(tl.int64) * BLOCK_M
    row_step = tl.num_programs(0).to(tl.int64) * BLOCK_M
    cols = tl.arange(0, BLOCK_N)

    # -- load: the weight, in one dimension: a tile of one row would spread over all the
    # threads, and the compiler would lay out the others like it, at every step anew
    weights, weight_sums, bias_sums = (), (), ()
    for tile in tl.static_range(N_TILES):
        weight_cols = tile * BLOCK_N + cols
        weight = load_weight(weight_ptr, weight_cols, weight_cols < n_cols, 1.0)
        weights += (weight[None, :],)
        weight_sums += (tl.zeros([BLOCK_M, BLOCK_N], tl.float32),)
        bias_sums += (tl.zeros([BLOCK_M, BLOCK_N], tl.float32),)
    cols = cols[None, :]

    for start in tl.range(first_row, n_rows, row_step, num_stages=NUM_STAGES):
        # -- next: what is read here, the compiler has under way to shared memory some
        # steps ahead. Columns past the end become 0, which adds nothing
        rows = start + tl.arange(0, BLOCK_M)[:, None]
        is_row = rows < n_rows
        grad_offsets = row_offset(
            rows, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
        )
        x_offsets = row_offset(
            rows, n_rows, rows_per_batch, x_stride_batch, x_stride_row
        )
        grads, xs = (), ()
        for tile in tl.static_range(N_TILES):
            tile_cols = tile * BLOCK_N + cols
            mask = is_row & (tile_cols < n_cols)
            grads += (tl.load(grad_ptr + grad_offsets + tile_cols, mask, 0.0),)
            xs += (tl.load(x_ptr + x_offsets + tile_cols, mask, 0.0),)
        mean = tl.load(mean_ptr + rows, mask=is_row, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=is_row, other=0.0)

        # -- reduce
        new_weight_sums, new_bias_sums, gs, x_hats = (), (), (), ()
        g_sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        product_sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for tile in tl.static_range(N_TILES):
            grad = grads[tile].to(tl.float32)
            x_hat = (xs[tile].to(tl.float32) - mean) * rstd
            new_weight_sums += (weight_sums[tile] + grad * x_hat,)
            new_bias_sums += (bias_sums[tile] + grad,)
            g = grad * weights[tile]
            g_sums += g
            product_sums += g * x_hat
            gs += (g,)
            x_hats += (x_hat,)
        weight_sums, bias_sums = new_weight_sums, new_bias_sums
        mean_g = mean_of(tl.sum(g_sums, axis=1, keep_dims=True), n_cols)
        product_sum = tl.sum(product_sums, axis=1, keep_dims=True)
        mean_product = mean_of(product_sum, n_cols)

        # -- store
        for tile in tl.static_range(N_TILES):
            tile_cols = tile * BLOCK_N + cols
            grad_x = rstd * (gs[tile] - mean_g - x_hats[tile] * mean_product)
            tl.store(
                grad_x_ptr + rows * n_cols + tile_cols,
                grad_x.to(grad_x_ptr.dtype.element_ty),
                mask=is_row & (tile_cols < n_cols),
            )

    # -- partials: for the last launch to add
    partials_ptr += tl.program_id(0).to(tl.int64) * n_cols
    bias_offset = tl.num_programs(0).to(tl.int64) * n_cols
    for tile in tl.static_range(N_TILES):
        tile_cols = tile * BLOCK_N + cols
        mask = tile_cols < n_cols
        sums = tl.sum(weight_sums[tile], axis=0, keep_dims=True)
        tl.store(partials_ptr + tile_cols, sums, mask=mask)
        sums = tl.sum(bias_sums[tile], axis=0, keep_dims=True)
        tl.store(partials_ptr + bias_offset + tile_cols, sums, mask=mask)


@triton.jit
def layer_norm_backward_rows_kernel(
    row_means_ptr,  # (2, n_rows)
    grad_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
    mean_ptr,  # (n_rows)
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
    DIVISIBILITY: tl.constexpr,
):
    """Rows too long for that, in two launches, which read them once each.

    The first finds the means of g and g * x_hat in every row.
    """
    # -- tile: a program owns one row and walks over it in tiles of BLOCK_N columns
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_N)
    grad_ptr += row_offset(
        row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
    )
    x_ptr += row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row)

    # -- reduce
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    sums = tl.zeros([BLOCK_N], tl.float32)
    product_sums = tl.zeros([BLOCK_N], tl.float32)
    n_cols = tl.cast(n_cols, tl.int64)  # or the last step could overflow
    for start in range(0, n_cols, BLOCK_N):
        mask = cols < n_cols - start
        grad = tl.load(grad_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        g = grad * load_weight(weight_ptr, start + cols, mask, 1.0)
        sums += g
        product_sums += g * ((x - mean) * rstd)

    # -- store
    tl.store(row_means_ptr + row, mean_of(tl.sum(sums, axis=0), n_cols))
    row_means_ptr += n_rows
    tl.store(row_means_ptr + row, mean_of(tl.sum(product_sums, axis=0), n_cols))


@triton.jit
def layer_norm_backward_columns_kernel(
    grad_x_ptr,  # (n_rows, n_cols)
    partials_ptr,  # (2, n_partials, n_cols)
    row_means_ptr,  # (2, n_rows)
    grad_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
    mean_ptr,  # (n_rows)
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
    DIVISIBILITY: tl.constexpr,
):
    """The second writes the gradient of x, and adds up those of weight and bias."""
    # -- tile: a program owns BLOCK_N columns of every num_programs-th row
    n_cols = known_multiple(n_cols, DIVISIBILITY)
    grad_stride_batch = known_multiple(grad_stride_batch, DIVISIBILITY)
    grad_stride_row = known_multiple(grad_stride_row, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_row = known_multiple(x_stride_row, DIVISIBILITY)
    cols = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = cols < n_cols

    # -- load: the weight
    weight = load_weight(weight_ptr, cols, mask, 1.0)

    # -- store: and accumulate
    weight_sums = tl.zeros([BLOCK_N], tl.float32)
    bias_sums = tl.zeros([BLOCK_N], tl.float32)
    for row in range(tl.program_id(1).to(tl.int64), n_rows, tl.num_programs(1)):
        grad_row = row_offset(
            row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
        )
        x_row = row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
        grad = tl.load(grad_ptr + grad_row + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + x_row + cols, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        mean_g = tl.load(row_means_ptr + row)
        mean_product = tl.load(row_means_ptr + n_rows + row)
        x_hat = (x - tl.load(mean_ptr + row)) * rstd
        weight_sums += grad * x_hat
        bias_sums += grad
        grad_x = rstd * (grad * weight - mean_g - x_hat * mean_product)
        tl.store(
            grad_x_ptr + row * n_cols + cols,
            grad_x.to(grad_x_ptr.dtype.element_ty),
            mask=mask,
        )

    # -- partials: for the last launch to add
    partials_ptr += tl.program_id(1).to(tl.int64) * n_cols
    tl.store(partials_ptr + cols, weight_sums, mask=mask)
    partials_ptr += tl.num_programs(1).to(tl.int64) * n_cols
    tl.store(partials_ptr + cols, bias_sums, mask=mask)


def layer_norm(
    out: Tensor,
    mean: Tensor,
    rstd: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    n_rows: int,
    n_cols: int,
    rows_per_batch: int,
    x_stride_batch: int,
    x_stride_row: int,
    eps: float,
    rung: int,
) -> None:
    """Launches the kernel for rows of this length on the current device and stream."""
    arguments = (
        out,
        mean,
        rstd,
        x,
        weight,
        bias,
        n_rows,
        n_cols,
        rows_per_batch,
        x_stride_batch,
        x_stride_row,
        eps,
    )
    divisibility = math.gcd(n_cols, x_stride_batch, x_stride_row, 16)
    tile = tile_for(TILES[x.element_size()], n_cols)
    block_m, most_cols, num_warps, in_registers = tile
    if in_registers:
        block_n = min(most_cols, max(16, triton.next_power_of_2(n_cols)))
        layer_norm_kernel[(triton.cdiv(n_rows, block_m),)](
            *arguments,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            N_TILES=triton.cdiv(n_cols, block_n),
            DIVISIBILITY=divisibility,
            num_warps=num_warps,
            enable_fp_fusion=True,
        )
        return
    if divisibility == 1:  # elements come one by one, from an address in registers each
        most_cols, num_warps = min(most_cols, 4096), min(num_warps, 16)
    layer_norm_long_kernel[(n_rows,)](
        *arguments,
        BLOCK_N=most_cols,
        DIVISIBILITY=divisibility,
        num_warps=num_warps,
        enable_fp_fusion=True,
    )


def layer_norm_backward(
    grad_x: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
    partials: Tensor,
    row_means: Tensor,
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    n_rows: int,
    n_cols: int,
    n_partials: int,
    rows_per_batch: int,
    grad_stride_batch: int,
    grad_stride_row: int,
    x_stride_batch: int,
    x_stride_row: int,
    rung: int,
) -> None:
    """Launches two kernels, for long rows three, on the current device and stream."""
    inputs = (
        grad,
        x,
        mean,
        rstd,
        weight,
        n_rows,
        n_cols,
        rows_per_batch,
        grad_stride_batch,
        grad_stride_row,
        x_stride_batch,
        x_stride_row,
    )
    divisibility = math.gcd(
        n_cols, grad_stride_batch, grad_stride_row, x_stride_batch, x_stride_row, 16
    )
    if tile := tile_for(BACKWARD_TILES[x.element_size()], n_cols):
        block_m, block_n, num_warps, num_stages = tile
        layer_norm_backward_kernel[(n_partials,)](
            grad_x,
            partials,
            *inputs,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            N_TILES=triton.cdiv(n_cols, block_n),
            NUM_STAGES=num_stages,
            DIVISIBILITY=divisibility,
            num_warps=num_warps,
            enable_fp_fusion=True,
        )
    else:
        n_partials = min(n_partials, max(COLUMNS_AT_ONCE // n_cols, 1))
        layer_norm_backward_rows_kernel[(n_rows,)](
            row_means,
            *inputs,
            BLOCK_N=ROWS_BLOCK_N,
            DIVISIBILITY=divisibility,
            num_warps=ROWS_NUM_WARPS,
            enable_fp_fusion=True,
        )
        layer_norm_backward_columns_kernel[
            (triton.cdiv(n_cols, COLUMNS_BLOCK_N), n_partials)
        ](
            grad_x,
            partials,
            row_means,
            *inputs,
            BLOCK_N=COLUMNS_BLOCK_N,
            DIVISIBILITY=divisibility,
            num_warps=COLUMNS_NUM_WARPS,
            enable_fp_fusion=True,
        )
    launch_sum_partials(grad_weight, grad_bias, partials, n_partials, n_cols)
