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

from triton_kernels.common.table import FIRST, Rung
from triton_kernels.common.vec import VEC_BYTES
from triton_kernels.sum.first import sum_first_kernel
from triton_kernels.sum.rows import sum_rows_kernel
from triton_kernels.sum.twin import sum_kernel

NUM_WARPS = 4
# A tile, and what it takes of a row of columns where there are many; of elements that
# are loaded one by one, half as much is faster, unless two-byte ones are not split.
TILE_BYTES, NARROW_TILE_BYTES = 16384, 8192
WIDTH_BYTES, NARROW_WIDTH_BYTES = 2048, 1024
# Less of a row where fewer programs would be left than keep a GPU busy, a number that
# is the same on every GPU, as the order of the additions depends on it; more where
# there are too few rows for as many steps.
LEAST_WIDTH_BYTES = 64
FEWEST_BLOCKS, FEWEST_SINGLES_BLOCKS, FEWEST_STEPS = 128, 384, 16


def rows_tile(n_cols: int, element_size: int) -> tuple[int, int, int]:
    """Rows and columns of a tile of rows of so many columns, and warps."""
    if n_cols > 2048:
        is_half_idle = 0 < n_cols % 2048 <= 1024  # the last one, if it were wider
        return (1, 1024, NUM_WARPS // 2) if is_half_idle else (1, 2048, NUM_WARPS)
    # The widest one of which no more than an eighth is idle.
    fitting = (n for n in (512, 256, 128, 64) if 8 * (-n_cols % n) <= n_cols)
    block_n = next(fitting, 32)
    block_m = TILE_BYTES // element_size // 128 if block_n <= 128 else 4096 // block_n
    return block_m, block_n, NUM_WARPS


def launch_rows(out, x, n_outer, n_reduced, n_inner, strides, n_splits, split_size):
    """Short rows take few columns, so that a program holds several."""
    arguments = (out, x, n_outer, n_reduced, n_inner, *strides, split_size)
    stride_outer, stride_reduced, stride_inner = strides
    n_cols = min(n_reduced, split_size)
    block_m, block_n, num_warps = rows_tile(n_cols, x.element_size())
    divisibility = math.gcd(n_reduced, stride_outer, stride_inner, 16)
    vec_size = VEC_BYTES // x.element_size()
    has_edges = stride_reduced == 1 and divisibility % vec_size != 0
    sum_rows_kernel[(triton.cdiv(n_outer * n_inner, block_m), n_splits)](
        *arguments,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        DIVISIBILITY=divisibility,
        VEC_SIZE=vec_size if has_edges else 0,
        num_warps=num_warps,
        enable_fp_fusion=True,
    )


def launch_columns(out, x, n_outer, n_reduced, n_inner, strides, n_splits, split_size):
    """As much of a row at a time as leaves enough programs, and rows for each."""
    arguments = (out, x, n_outer, n_reduced, n_inner, *strides, split_size)
    stride_outer, stride_reduced, stride_inner = strides
    element_size, n_rows = x.element_size(), min(n_reduced, split_size)
    divisibility = math.gcd(n_inner, stride_outer, stride_reduced, 16)
    has_vectors = stride_inner == 1 and divisibility * element_size >= VEC_BYTES
    are_singles = not has_vectors and element_size == 2 and n_splits == 1
    is_wide = has_vectors or are_singles
    tile_size = (TILE_BYTES if is_wide else NARROW_TILE_BYTES) // element_size
    fewest_blocks = FEWEST_SINGLES_BLOCKS if are_singles else FEWEST_BLOCKS
    width = (WIDTH_BYTES if has_vectors else NARROW_WIDTH_BYTES) // element_size
    block_n = LEAST_WIDTH_BYTES // element_size
    while block_n < n_inner and block_n < tile_size:
        too_few_rows = block_n * n_rows < FEWEST_STEPS * tile_size
        n_blocks = n_outer * triton.cdiv(n_inner, 2 * block_n) * n_splits
        if n_blocks < fewest_blocks or (block_n >= width and not too_few_rows):
            break
        block_n *= 2
    sum_kernel[(n_outer * triton.cdiv(n_inner, block_n), n_splits)](
        *arguments,
        BLOCK_M=tile_size // block_n,
        BLOCK_N=block_n,
        DIVISIBILITY=divisibility,
        num_warps=NUM_WARPS,
        enable_fp_fusion=True,
    )


def sum(
    out,
    x,
    workspace,
    n_outer,
    n_reduced,
    n_inner,
    *strides,
    by_rows,
    n_splits,
    split_size,
    rung,
):
    """Launches a kernel on the current device and stream, once or twice.

    Where there are too few outputs to fill a GPU, n_splits programs share each of them:
    they leave their sums in the workspace, and a second launch adds those, as columns.
    """
    n_outputs = n_outer * n_inner
    if rung == Rung.FIRST:
        sum_first_kernel[(n_outputs,)](out, x, n_reduced, n_inner, *strides, **FIRST)
        return
    sums = out if n_splits == 1 else workspace
    launch = launch_rows if by_rows else launch_columns
    launch(sums, x, n_outer, n_reduced, n_inner, strides, n_splits, split_size)
    if n_splits > 1:
        partial_strides = (0, n_outputs, 1)
        launch_columns(
            out, workspace, 1, n_splits, n_outputs, partial_strides, 1, n_splits
        )
