"""What layer_norm.py and rms_norm.py share: the mirror of norms.cuh."""

import triton
import triton.language as tl
from torch import Tensor

# ---- Rows ----------------------------------------------------------------------------

# In the backward 4096 elements, with those that are on their way, keep the memory
# busy, where one program of 4-byte elements or two of 2-byte elements run on a
# multiprocessor, and fit into the shared memory of any GPU. A longer row is several
# tiles.
# (most columns, BLOCK_M, BLOCK_N, num_warps, NUM_STAGES)
BACKWARD_TILES: dict[int, tuple[tuple[int, ...], ...]] = {
    4: (
        (16, 64, 16, 8, 3),
        (32, 64, 32, 8, 3),
        (64, 64, 64, 8, 3),
        (128, 16, 128, 8, 3),
        (256, 16, 256, 8, 3),
        (512, 8, 512, 8, 3),
        (1024, 4, 1024, 8, 3),
        (2048, 2, 2048, 8, 3),
        (4096, 1, 4096, 16, 3),
        (8192, 1, 1024, 8, 3),
    ),
    2: (
        (16, 64, 16, 8, 3),
        (32, 64, 32, 8, 3),
        (64, 64, 64, 8, 3),
        (128, 32, 64, 8, 3),
        (192, 16, 64, 4, 3),
        (256, 16, 256, 4, 3),
        (384, 8, 128, 4, 3),
        (512, 8, 256, 4, 3),
        (768, 4, 128, 4, 3),
        (1024, 4, 1024, 4, 3),
        (2048, 2, 512, 4, 3),
        (4096, 1, 1024, 4, 3),
        (8192, 1, 1024, 8, 3),
    ),
}

# Of rows too long for that, the tiles of the launch that walks along rows.
ROWS_BLOCK_N = 4096
ROWS_NUM_WARPS = 8

# A long row's gradient: a program owns so many columns and walks down the rows.
COLUMNS_BLOCK_N = 1024
COLUMNS_NUM_WARPS = 4
COLUMNS_AT_ONCE = 132 * 1024 * 8  # in all programs


@triton.jit
def load_weight(weight_ptr, cols, mask, absent):
    """Values of a weight in float32, or `absent` where there is none.

    All rows share them: they are to stay in the cache while rows pass through it.
    """
    if weight_ptr is None:
        weight = tl.full(cols.shape, absent, tl.float32)
    else:
        weight = tl.load(
            weight_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last"
        ).to(tl.float32)
    return weight


@triton.jit
def mean_of(total, n_cols):
    """The mean of a row from its sum, correctly rounded.

    So a row of equal numbers, whose sum is exact, has exactly these as its mean.
    """
    return tl.div_rn(total, tl.cast(n_cols, tl.float32))


# ---- Gradients of weights ------------------------------------------------------------

SUM_NUM_WARPS = 4


@triton.jit
def sum_partials_kernel(
    grad_weight_ptr,  # (n_cols)
    grad_bias_ptr,  # (n_cols), or None
    partials_ptr,  # (1 or 2, n_partials, n_cols)
    n_partials,
    n_cols,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The last launch of a backward: adds what programs have left, in a fixed order."""
    # -- tile: a program owns BLOCK_N columns of one of the gradients
    cols = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    out_ptr = grad_weight_ptr
    if grad_bias_ptr is not None:  # noqa: SIM102 (known when it is compiled)
        if tl.program_id(1) == 1:
            out_ptr = grad_bias_ptr
    partials_ptr += tl.program_id(1).to(tl.int64) * n_partials * n_cols

    # -- accumulate: each element of a tile has a sum of its own
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    partials = tl.arange(0, BLOCK_M).to(tl.int64)[:, None]
    for start in range(0, n_partials, BLOCK_M):
        mask = (start + partials < n_partials) & (cols < n_cols)
        offsets = (start + partials) * n_cols + cols
        sums += tl.load(partials_ptr + offsets, mask=mask, other=0.0)

    # -- reduce: the sums of a column
    sum = tl.sum(sums, axis=0, keep_dims=True)

    # -- store: rounded once
    tl.store(out_ptr + cols, sum.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


def launch_sum_partials(
    grad_weight: Tensor,
    grad_bias: Tensor | None,
    partials: Tensor,
    n_partials: int,
    n_cols: int,
) -> None:
    """Launches sum_partials_kernel on the current device and stream.

    Of a tile's 1024 elements as many are in a column as there are partial sums, but few
    enough that 32 columns, which are read as lines of 128 bytes, fit beside each other.
    """
    n_outputs = 1 if grad_bias is None else 2
    block_m = min(triton.next_power_of_2(n_partials), 32)
    block_n = 1024 // block_m
    sum_partials_kernel[(triton.cdiv(n_cols, block_n), n_outputs)](
        grad_weight,
        grad_bias,
        partials,
        n_partials,
        n_cols,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        num_warps=SUM_NUM_WARPS,
        enable_fp_fusion=True,
    )
