"""A product of matrices of 8-bit floats, with scales.

  scaled_matmul: out[i, j] = scale_a[i] scale_b[j] (sum over k of a[i, k] b[k, j])

Layout   out: contiguous. a: rows contiguous, b: columns contiguous, both with a
         multiple of 16 bytes between them. Scales: one for each row or column, of any
         stride, or one number, with a stride of 0.
Traffic  an element of a or b that a program has loaded serves all columns or rows of
         its tile. Large products are bound by the tensor cores, those of few rows by b.
Limits   tensor cores add up products of 8 bits with 13 bits of fraction: 128 at a time,
         and such sums are added in float32. Without them all is added in float32.
Mirror   csrc/scaled_matmul/scaled_matmul.cu
Source   matmul's twin, and that for tf32x3, which adds steps likewise; DeepSeek-AI
         2024, arXiv:2412.19437, section 3.3.2
"""

from typing import NamedTuple

import torch
import triton
from triton.experimental.gluon.language import NVMMASharedLayout

from triton_kernels.common.device import current_device
from triton_kernels.common.math import INTERPRETED
from triton_kernels.common.table import FIRST, CannotServeError, Rung
from triton_kernels.common.tensor_map import describe
from triton_kernels.common.vec import VEC_BYTES
from triton_kernels.scaled_matmul.first import scaled_matmul_first_kernel
from triton_kernels.scaled_matmul.twin import BLOCK_M, BOX_SIZE, scaled_matmul_kernel

MOST = 2**31 - 1  # what is counted in 32 bits


class ScaledTile(NamedTuple):
    """A tile, and what it costs.

    Costs compare, as measured on an H200: a large tile reads less for each product, and
    the small one is for products of few rows.
    """

    block_n: int
    num_stages: int  # steps whose a and b are in shared memory at a time
    cost: int


TILES = ScaledTile(128, 6, 3), ScaledTile(64, 8, 2)
BLOCK_K = 128  # a step: a row of 128 bytes of each tile in shared memory
_BOX_SIZE, _BLOCK_M = BOX_SIZE.value, BLOCK_M.value
_FEWEST_ROWS = 16  # of a copy


def is_aligned(x, stride):
    """Whether TMA can copy it: each row begins at a multiple of 16 bytes."""
    stride_bytes = stride * x.element_size()
    return x.data_ptr() % VEC_BYTES == 0 and stride_bytes % VEC_BYTES == 0


def choose_tile(M, N, n_sms):
    """The first of the tiles that cost least: as much in each wave of programs."""

    def cost_of(tile):
        n_tiles = triton.cdiv(M, _BLOCK_M) * triton.cdiv(N, tile.block_n)
        return triton.cdiv(n_tiles, n_sms) * tile.cost

    return min(TILES, key=cost_of)


def map_of(x, n_rows, n_cols, stride, block):
    """How TMA finds blocks of a matrix, which lie in rows of 128 bytes."""
    sizes, strides = (1, n_rows, n_cols), (n_rows * stride, stride, 1)
    layout = NVMMASharedLayout(128, x.element_size() * 8, rank=3)
    return describe(x, sizes, strides, (1, *block), layout=layout)


def launch_twin(out, a, b, scales, M, N, K, strides):
    """Launches the twin, with as many programs as run at a time."""
    a_stride_row, b_stride_col, *scale_strides = strides
    n_sms = current_device().n_sms
    tile = choose_tile(M, N, n_sms)
    n_tiles = triton.cdiv(M, _BLOCK_M) * triton.cdiv(N, tile.block_n)
    n_copied_rows = min(max(triton.next_power_of_2(M), _FEWEST_ROWS), _BLOCK_M)
    out_has_map = is_aligned(out, N)
    scaled_matmul_kernel[(min(n_tiles, n_sms),)](
        map_of(out, M, N, N, (_BOX_SIZE, _BOX_SIZE)) if out_has_map else out,
        map_of(a, M, K, a_stride_row, (n_copied_rows, BLOCK_K)),
        map_of(b, N, K, b_stride_col, (tile.block_n, BLOCK_K)),
        *(*scales, M, N, K, *scale_strides),
        BLOCK_N=tile.block_n,
        BLOCK_K=BLOCK_K,
        NUM_STAGES=tile.num_stages,
        OUT_HAS_MAP=out_has_map,
        num_warps=4,
        enable_fp_fusion=True,
    )


def scaled_matmul(
    out,
    a,
    b,
    scale_a,
    scale_b,
    M,
    N,
    K,
    a_stride_row,
    b_stride_col,
    scale_a_stride,
    scale_b_stride,
    a_is_e5m2,
    b_is_e5m2,
    rung,
):
    """Launches the rung's kernel on the current device and stream."""
    strides = a_stride_row, b_stride_col, scale_a_stride, scale_b_stride
    has_twin = (
        current_device().arch == 90
        and not INTERPRETED  # the twin is written in Gluon, which has no interpreter
        and all(0 < size <= MOST - 256 for size in (M, N, K))
        and triton.cdiv(M, 128) * triton.cdiv(N, 64) <= MOST // 2
        and is_aligned(a, a_stride_row)
        and is_aligned(b, b_stride_col)
    )
    if has_twin and rung != Rung.FIRST:
        launch_twin(out, a, b, (scale_a, scale_b), M, N, K, strides)
        return
    if rung == Rung.TWIN:
        raise CannotServeError("scaled_matmul: the twin cannot serve such a call here")
    sizes = {**FIRST, "BLOCK_M": 32, "BLOCK_N": 32}
    scaled_matmul_first_kernel[(triton.cdiv(M, 32) * triton.cdiv(N, 32),)](
        *(out, a.view(torch.uint8), b.view(torch.uint8), scale_a, scale_b, M, N, K),
        *strides,
        A_IS_E5M2=a_is_e5m2,
        B_IS_E5M2=b_is_e5m2,
        **sizes,
    )
