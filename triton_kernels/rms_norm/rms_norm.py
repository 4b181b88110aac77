"""Root mean square normalisation of every row of a matrix, and its backward.

  rms_norm:          out[row, :] = x_hat[row, :] * weight,
                     x_hat[row, :] = x[row, :] * rstd[row],
                     rstd[row] = 1 / sqrt(mean(x[row, :]^2) + eps)
  rms_norm_backward: grad_x[row, :] = rstd[row] * (g - x_hat[row, :] * m),
                     g = grad[row, :] * weight, m = mean(g * x_hat[row, :]);
                     grad_weight = sum of grad[row, :] * x_hat[row, :] over all rows

Layout   out, grad_x: (n_rows, n_cols), contiguous. x, grad: columns contiguous; row r
         of x begins at
         (r / rows_per_batch) * x_stride_batch + (r % rows_per_batch) * x_stride_row.
         rstd: float32, one for each row. weight: contiguous, or None for ones.
Traffic  reads and writes every element once: a row of up to 1024 columns stays in
         registers, a longer one is read again out of the L1 cache, as long as those
         that a multiprocessor works on fit into it (one row of about 50000 float32).
         The backward holds two rows of up to 12288 columns, 8192 of single elements,
         and a sum for each column; beyond that a row is read twice.
Limits   accumulates in float32. Gradients of weights are added in an order that depends
         on the shape and the dtype alone.
Mirror   csrc/rms_norm/rms_norm.cu
Source   Zhang & Sennrich 2019, arXiv:1910.07467
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
from triton_kernels.common.vec import VEC_BYTES, known_multiple

# In the backward one sum for each column, in place of layer_norm's two, leaves
# registers for longer rows, but not for those that are loaded element by element.
LONGEST_BACKWARD_TILE = {  # most columns, BLOCK_M, BLOCK_N, num_warps, NUM_STAGES
    4: (12288, 1, 4096, 16, 2),
    2: (12288, 1, 4096, 16, 1),
}


# The rows of a tile and the warps that share it, by the bytes of an element and the
# longest row that fits: short rows share a program.
TILES = {  # (most columns, BLOCK_M, num_warps)
    4: ((64, 32, 4), (256, 8, 4), (512, 4, 4), (1024, 1, 4)),
    2: ((64, 32, 4), (256, 8, 4), (512, 4, 4), (1024, 4, 4)),
}

# A row that is not kept in registers is walked over in tiles, by as many warps as keep
# enough loads under way, but no more: they wait for each other at the sums. Of 32
# warps, few programs share a multiprocessor, and so their rows the L1 cache; the
# longest rows do not fit anyway.
LONG_TILES = {  # (most columns, BLOCK_N, num_warps)
    4: (
        (2048, 2048, 8),
        (16384, 4096, 16),
        (32768, 32768, 32),
        (65536, 8192, 32),
        (sys.maxsize, 4096, 16),
    ),
    2: (
        (2048, 2048, 4),
        (8192, 4096, 8),
        (16384, 4096, 16),
        (65536, 8192, 32),
        (sys.maxsize, 4096, 16),
    ),
}


@triton.jit
def rms_norm_kernel(
    out_ptr,  # (n_rows, n_cols)
    rstd_ptr,  # (n_rows)
    x_ptr,  # (n_rows, n_cols)
    weight_ptr,  # (n_cols), or None
    n_rows,
    n_cols,
    rows_per_batch,
    x_stride_batch,
    x_stride_row,
    eps,
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

    # -- load: columns past the end become 0, which adds nothing; the weight is on its
    # way while the sum is waited for
    x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    weight = load_weight(weight_ptr, cols, cols < n_cols, 1.0)

    # -- rstd: kept for the backward
    square_sum = tl.sum(x * x, axis=1, keep_dims=True)
    rstd = tl.rsqrt(mean_of(square_sum, n_cols) + eps)
    tl.store(rstd_ptr + rows, rstd, mask=rows < n_rows)

    # -- store: rounded once
    out = x * (rstd * weight)
    tl.store(out_ptr + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rms_norm_long_kernel(
    out_ptr,  # (n_rows, n_cols)
    rstd_ptr,  # (n_rows)
    x_ptr,  # (n_rows, n_cols)
    weight_ptr,  # (n_cols), or None
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

    # -- rstd: kept for the backward
    square_sums = tl.zeros([BLOCK_N], tl.float32)
    n_cols = tl.cast(n_cols, tl.int64)  # or the last step could overflow
    for start in range(0, n_cols, BLOCK_N):
        mask = cols < n_cols - start
        x = tl.load(
            x_ptr + start + cols, mask=mask, other=0.0, eviction_policy="evict_last"
        ).to(tl.float32)
        square_sums += x * x
    square_sum = tl.sum(square_sums, axis=0)
    rstd = tl.rsqrt(mean_of(square_sum, n_cols) + eps)
    tl.store(rstd_ptr + row, rstd)

    # -- store: the second pass
    for start in range(0, n_cols, BLOCK_N):
        mask = cols < n_cols - start
        x = tl.load(
            x_ptr + start + cols, mask=mask, other=0.0, eviction_policy="evict_first"
        ).to(tl.float32)
        out = x * (rstd * load_weight(weight_ptr, start + cols, mask, 1.0))
        tl.store(out_ptr + start + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rms_norm_backward_kernel(
    grad_x_ptr,  # (n_rows, n_cols)
    partials_ptr,  # (n_partials, n_cols)
    grad_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
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
    the gradient of the weight. A long row is a tuple of tiles: together they need not
    be a power of two, as one has to be.
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
    weights, weight_sums = (), ()
    for tile in tl.static_range(N_TILES):
        weight_cols = tile * BLOCK_N + cols
        weight = load_weight(weight_ptr, weight_cols, weight_cols < n_cols, 1.0)
        weights += (weight[None, :],)
        weight_sums += (tl.zeros([BLOCK_M, BLOCK_N], tl.float32),)
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
        rstd = tl.load(rstd_ptr + rows, mask=is_row, other=0.0)

        # -- reduce
        new_weight_sums, gs, x_hats = (), (), ()
        product_sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for tile in tl.static_range(N_TILES):
            grad = grads[tile].to(tl.float32)
            x_hat = xs[tile].to(tl.float32) * rstd
            new_weight_sums += (weight_sums[tile] + grad * x_hat,)
            g = grad * weights[tile]
            product_sums += g * x_hat
            gs += (g,)
            x_hats += (x_hat,)
        weight_sums = new_weight_sums
        product_sum = tl.sum(product_sums, axis=1, keep_dims=True)
        mean_product = mean_of(product_sum, n_cols)

        # -- store
        for tile in tl.static_range(N_TILES):
            tile_cols = tile * BLOCK_N + cols
            grad_x = rstd * (gs[tile] - x_hats[tile] * mean_product)
            tl.store(
                grad_x_ptr + rows * n_cols + tile_cols,
                grad_x.to(grad_x_ptr.dtype.element_ty),
                mask=is_row & (tile_cols < n_cols),
            )

    # -- partials: for the last launch to add
    partials_ptr += tl.program_id(0).to(tl.int64) * n_cols
    for tile in tl.static_range(N_TILES):
        tile_cols = tile * BLOCK_N + cols
        sums = tl.sum(weight_sums[tile], axis=0, keep_dims=True)
        tl.store(partials_ptr + tile_cols, sums, mask=tile_cols < n_cols)


@triton.jit
def rms_norm_backward_rows_kernel(
    mean_product_ptr,  # (n_rows)
    grad_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
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

    The first finds the mean of g * x_hat in every row.
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
    product_sums = tl.zeros([BLOCK_N], tl.float32)
    n_cols = tl.cast(n_cols, tl.int64)  # or the last step could overflow
    for start in range(0, n_cols, BLOCK_N):
        mask = cols < n_cols - start
        grad = tl.load(grad_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
        product_sums += grad * x * load_weight(weight_ptr, start + cols, mask, 1.0)
    product_sum = tl.sum(product_sums, axis=0)

    # -- store
    rstd = tl.load(rstd_ptr + row)
    tl.store(mean_product_ptr + row, mean_of(product_sum * rstd, n_cols))


@triton.jit
def rms_norm_backward_columns_kernel(
    grad_x_ptr,  # (n_rows, n_cols)
    partials_ptr,  # (n_partials, n_cols)
    mean_product_ptr,  # (n_rows)
    grad_ptr,  # (n_rows, n_cols)
    x_ptr,  # (n_rows, n_cols)
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
    """The second writes the gradient of x, and adds up that of the weight."""
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
    for row in range(tl.program_id(1).to(tl.int64), n_rows, tl.num_programs(1)):
        grad_row = row_offset(
            row, n_rows, rows_per_batch, grad_stride_batch, grad_stride_row
        )
        x_row = row_offset(row, n_rows, rows_per_batch, x_stride_batch, x_stride_row)
        grad = tl.load(grad_ptr + grad_row + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + x_row + cols, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        x_hat = x * rstd
        weight_sums += grad * x_hat
        grad_x = rstd * (grad * weight - x_hat * tl.load(mean_product_ptr + row))
        tl.store(
            grad_x_ptr + row * n_cols + cols,
            grad_x.to(grad_x_ptr.dtype.element_ty),
            mask=mask,
        )

    # -- partials: for the last launch to add
    partials_ptr += tl.program_id(1).to(tl.int64) * n_cols
    tl.store(partials_ptr + cols, weight_sums, mask=mask)


def rms_norm(
    out: Tensor,
    rstd: Tensor,
    x: Tensor,
    weight: Tensor | None,
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
        rstd,
        x,
        weight,
        n_rows,
        n_cols,
        rows_per_batch,
        x_stride_batch,
        x_stride_row,
        eps,
    )
    divisibility = math.gcd(n_cols, x_stride_batch, x_stride_row, 16)
    if tile := tile_for(TILES[x.element_size()], n_cols):
        block_m, num_warps = tile
        rms_norm_kernel[(triton.cdiv(n_rows, block_m),)](
            *arguments,
            BLOCK_M=block_m,
            BLOCK_N=max(16, triton.next_power_of_2(n_cols)),
            DIVISIBILITY=divisibility,
            num_warps=num_warps,
            enable_fp_fusion=True,
        )
        return
    block_n, num_warps = tile_for(LONG_TILES[x.element_size()], n_cols)
    rms_norm_long_kernel[(n_rows,)](
        *arguments,
        BLOCK_N=block_n,
        DIVISIBILITY=divisibility,
        num_warps=num_warps,
        enable_fp_fusion=True,
    )


def rms_norm_backward(
    grad_x: Tensor,
    grad_weight: Tensor,
    partials: Tensor,
    mean_product: Tensor,
    grad: Tensor,
    x: Tensor,
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
    tiles = BACKWARD_TILES[x.element_size()]
    if divisibility * x.element_size() >= VEC_BYTES:
        tiles += (LONGEST_BACKWARD_TILE[x.element_size()],)
    if tile := tile_for(tiles, n_cols):
        block_m, block_n, num_warps, num_stages = tile
        rms_norm_backward_kernel[(n_partials,)](
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
        rms_norm_backward_rows_kernel[(n_rows,)](
            mean_product,
            *inputs,
            BLOCK_N=ROWS_BLOCK_N,
            DIVISIBILITY=divisibility,
            num_warps=ROWS_NUM_WARPS,
            enable_fp_fusion=True,
        )
        rms_norm_backward_columns_kernel[
            (triton.cdiv(n_cols, COLUMNS_BLOCK_N), n_partials)
        ](
            grad_x,
            partials,
            mean_product,
            *inputs,
            BLOCK_N=COLUMNS_BLOCK_N,
            DIVISIBILITY=divisibility,
            num_warps=COLUMNS_NUM_WARPS,
            enable_fp_fusion=True,
        )
    launch_sum_partials(grad_weight, None, partials, n_partials, n_cols)
