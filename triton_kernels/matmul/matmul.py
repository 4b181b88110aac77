"""A product of matrices, with what follows it fused: a bias and an activation.

  matmul: out[i, j] = f(sum over k of a[i, k] b[k, j] + bias[j])

Layout   out: contiguous. a, b: of the strides of a row and of a column one is 1 and
         the other anything; any stride from batch to batch, 0 for a shared operand.
Traffic  an element of a or b that has come to a block serves a tile's columns or rows;
         large products are bound by the tensor cores, those of few rows by reading b.
Limits   accumulates in float32, so float16 and bfloat16 are rounded once. Of float32
         tensor cores take no more than tf32: where that will not do, FMA computes.
Mirror   csrc/matmul/matmul.cu differs in matmul_kernel, because Triton 3.6 gives
         all warps of a Hopper program the same work, and plans their waiting itself.
         The variant in triton_kernels/matmul/gluon.py is nearer to it.
Source   the rungs below it in csrc/matmul, one step at a time; NVIDIA, CUTLASS:
         persistent, warp-specialised kernels for Hopper
"""

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_kernels.common.epilogue import ACTIVATIONS
from triton_kernels.common.math import INTERPRETED
from triton_kernels.common.tiles import Address, finish, load_bias, tile_at
from triton_kernels.common.table import CannotServeError
from triton_kernels.matmul import gluon as warp_specialized
from triton_kernels.matmul.first import matmul_first
from triton_kernels.matmul.tensor_cores import matmul_tensor_cores
from triton_kernels.matmul.tiled import matmul_tiled

Shape = tuple[int, int, int]

GROUP_M = 8  # rows of tiles that are under way at a time
NUM_SMS = 132  # of an H200
TMA_ALIGNMENT = 16  # bytes, of an address and of every stride but that of neighbours


FIRST, TILED, TENSOR_CORES, TWIN = 1, 2, 3, 4
LADDER = {FIRST: matmul_first, TILED: matmul_tiled, TENSOR_CORES: matmul_tensor_cores}


class Tile(NamedTuple):
    """What a program works on at a time, and how.

    The stages of a and b share the 227 KB of shared memory that a multiprocessor of an
    H200 has with one part of the result: n_parts groups of columns are stored one after
    another. Fewer values at a time also keep the activations within the registers.
    """

    block_m: int
    block_n: int
    block_k: int
    num_stages: int
    num_warps: int
    num_programs: int
    n_parts: int = 1


# The small tile lets every multiprocessor read, far ahead, where there are few rows or
# few tiles. The large one costs the fewest bytes for a product. Of the medium one two
# programs share a multiprocessor: while one stores, the other one's tensor cores work,
# which counts where there are few steps between two stores.
SMALL_TILE = Tile(64, 64, 128, 4, num_warps=4, num_programs=NUM_SMS)
MEDIUM_TILE = Tile(128, 128, 64, 3, num_warps=4, num_programs=2 * NUM_SMS, n_parts=2)
LARGE_TILE = Tile(128, 256, 64, 4, num_warps=8, num_programs=NUM_SMS, n_parts=2)
LARGE_TILE_MIN_K = 1024
# More warps, with half the registers each, get through a long epilogue faster.
MEDIUM_TILE_LONG_EPILOGUE = MEDIUM_TILE._replace(num_warps=8)
LONG_EPILOGUES = ("gelu", "gelu_tanh", "silu")


@triton.jit
def store_part(out_map, accumulator, bias, batch, row, col, ACTIVATION: tl.constexpr):
    """Stores a group of columns of a tile."""
    part = finish(accumulator, bias, ACTIVATION, out_map.dtype)
    part = part.reshape([1, accumulator.shape[0], accumulator.shape[1]])
    out_map.store([batch, row, col], part)


@triton.jit
def store_tile(
    out_map,
    accumulator,
    bias_ptr,
    batch,
    row,
    col,
    N,
    N_PARTS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """Stores a tile as one or two groups of columns, through as little shared memory.

    The bias of both is loaded at once: a column by each thread, which the others get
    through shared memory. Of a group by itself the compiler has each thread load all
    that it needs, 32 columns, one after the other.
    """
    tl.static_assert(N_PARTS <= 2)
    PART: tl.constexpr = accumulator.shape[1] // N_PARTS
    bias = load_bias(bias_ptr, col + tl.arange(0, accumulator.shape[1]), N)
    if N_PARTS == 1:
        store_part(out_map, accumulator, bias, batch, row, col, ACTIVATION)
    else:
        left_bias, right_bias = None, None
        if bias is not None:
            left_bias, right_bias = bias.reshape([2, PART]).permute([1, 0]).split()
        halves = accumulator.reshape([accumulator.shape[0], 2, PART])
        left, right = halves.permute([0, 2, 1]).split()
        store_part(out_map, left, left_bias, batch, row, col, ACTIVATION)
        store_part(out_map, right, right_bias, batch, row, col + PART, ACTIVATION)


@triton.jit
def matmul_kernel(
    out_map,  # (n_batches, M, N)
    a_map,  # (n_batches or 1, M, K), or transposed
    b_map,  # (n_batches or 1, K, N), or transposed
    bias_ptr,  # (N), or None
    n_batches,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    N_PARTS: tl.constexpr,
    A_HAS_BATCHES: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    B_HAS_BATCHES: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """The last rung: the copy engine (TMA) brings tiles, a program multiplies many.

    The steps through tiles and through k are made one loop (flatten), so that the next
    tile's a and b are on their way while this one is stored. There is a step for each
    tile, or the compiler would provide for tiles without one.
    """
    # -- tile: a program takes every num_programs-th one
    n_tile_rows, n_tile_cols = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    n_tiles = n_batches * n_tile_rows * n_tile_cols
    n_steps = tl.cdiv(K, BLOCK_K)
    tl.assume(n_steps > 0)
    for index in tl.range(tl.program_id(0), n_tiles, tl.num_programs(0), flatten=True):
        batch, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols, GROUP_M)
        row, col = tile_row * BLOCK_M, tile_col * BLOCK_N
        a_batch = batch if A_HAS_BATCHES else 0
        b_batch = batch if B_HAS_BATCHES else 0

        # -- compute: in float32; a tile of a transpose is transposed where it lies
        accumulator = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for step in range(n_steps):
            k = step * BLOCK_K
            if A_ROW_MAJOR:
                a_tile = a_map.load([a_batch, row, k]).reshape([BLOCK_M, BLOCK_K])
            else:
                a_tile = a_map.load([a_batch, k, row]).reshape([BLOCK_K, BLOCK_M]).T
            if B_ROW_MAJOR:
                b_tile = b_map.load([b_batch, k, col]).reshape([BLOCK_K, BLOCK_N])
            else:
                b_tile = b_map.load([b_batch, col, k]).reshape([BLOCK_N, BLOCK_K]).T
            accumulator = tl.dot(a_tile, b_tile, accumulator)

        # -- store: after the epilogue, rounded once
        store_tile(
            out_map, accumulator, bias_ptr, batch, row, col, N, N_PARTS, ACTIVATION
        )


@functools.lru_cache(maxsize=1024)
def cached_descriptor(
    base: Address, shape: Shape, strides: Shape, block: Shape
) -> TensorDescriptor:
    """To find one takes a third of the time of making it."""
    return TensorDescriptor(base, shape, strides, block)


def describe(
    x: Tensor, shape: Shape, strides: Shape, block_rows: int, block_cols: int
) -> TensorDescriptor:
    """How TMA finds the tiles of a matrix, or of its transpose if that is row-major."""
    n_batches, n_rows, n_cols = shape
    stride_batch, stride_row, stride_col = strides
    block = (1, block_rows, block_cols)
    if stride_col != 1:
        n_rows, n_cols, stride_row = n_cols, n_rows, stride_col
        block = (1, block_cols, block_rows)
    if n_batches == 1:
        stride_batch = n_rows * stride_row  # of no use, but it has to be a multiple too
    shape, strides = (n_batches, n_rows, n_cols), (stride_batch, stride_row, 1)
    if INTERPRETED or x.is_meta:  # read by another program than the one that launches
        return TensorDescriptor(x, shape, strides, block)
    return cached_descriptor(Address(x.data_ptr(), x.dtype), shape, strides, block)


def tile_for(n_batches: int, M: int, N: int, K: int, activation: str) -> Tile:
    """The table of tiles, as long as three in four multiprocessors have one."""

    def has_enough(tile: Tile) -> bool:
        n_tile_rows = triton.cdiv(M, tile.block_m)
        n_tile_cols = triton.cdiv(N, tile.block_n)
        return bool(n_batches * n_tile_rows * n_tile_cols >= 99)

    if M <= 64 or not has_enough(MEDIUM_TILE):
        return SMALL_TILE
    if K >= LARGE_TILE_MIN_K and has_enough(LARGE_TILE):
        return LARGE_TILE
    if activation in LONG_EPILOGUES:
        return MEDIUM_TILE_LONG_EPILOGUE
    return MEDIUM_TILE


@functools.cache
def is_hopper(device: object) -> bool:
    """Whether matmul_kernel is made for the current device, the one of this number.

    Newer GPUs have TMA too; from architecture 12 on they lack the shared memory.
    """
    target = triton.runtime.driver.active.get_current_target()
    return bool(90 <= target.arch < 120)


def can_specialize_warps(
    tile: Tile, dtype: torch.dtype, n_batches: int, activation: str
) -> bool:
    """Whether warps with work of their own gain, and can be had on the current device.

    They do where an epilogue takes long. Those of float16 want more registers than a
    warpgroup has beside its sums.
    """
    if tile != LARGE_TILE or n_batches != 1 or activation not in LONG_EPILOGUES:
        return False
    if INTERPRETED or dtype != torch.bfloat16:
        return False
    target = triton.runtime.driver.active.get_current_target()
    return bool(target.arch == 90)


def can_use_tma(
    out: Tensor, a: Tensor, b: Tensor, M: int, N: int, K: int, strides: list[int]
) -> bool:
    """Whether matmul_kernel can be launched, on the current device.

    Args:
        out: The product.
        a: The left factor.
        b: The right factor.
        M: Rows of a.
        N: Columns of b.
        K: Columns of a.
        strides: All that a step to another element can take, but 1.
    """
    size = out.element_size()
    if out.dtype == torch.float32 or not all(0 < each < 2**31 for each in (M, N, K)):
        return False
    if any(each <= 0 or each * size % TMA_ALIGNMENT != 0 for each in strides):
        return False
    if any(each.data_ptr() % TMA_ALIGNMENT != 0 for each in (out, a, b)):
        return False
    if INTERPRETED:
        return True
    return is_hopper(triton.runtime.driver.active.get_current_device())


def matmul(
    out: Tensor,
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    n_batches: int,
    M: int,
    N: int,
    K: int,
    a_stride_batch: int,
    a_stride_row: int,
    a_stride_col: int,
    b_stride_batch: int,
    b_stride_row: int,
    b_stride_col: int,
    activation: int,
    tf32: bool,
    rung: int,
) -> None:
    """Launches a kernel on the current device and stream.

    Args:
        out: The product.
        a: The left factor.
        b: The right factor.
        bias: Is added to every row of the product.
        n_batches: Products that are independent of each other.
        M: Rows of a.
        N: Columns of b.
        K: Columns of a.
        a_stride_batch: 0 where all batches have the same a.
        a_stride_row: 1, or a_stride_col is.
        a_stride_col: 1, or a_stride_row is.
        b_stride_batch: 0 where all batches have the same b.
        b_stride_row: 1, or b_stride_col is.
        b_stride_col: 1, or b_stride_row is.
        activation: A place in ACTIVATIONS.
        tf32: Whether float32 may be rounded to tf32 before it is multiplied.
        rung: The kernel, one of FIRST to TWIN; 0 for the fastest that can do it.
    """
    a_row_major, b_row_major = a_stride_col == 1, b_stride_col == 1
    a_has_batches = n_batches > 1 and a_stride_batch != 0
    b_has_batches = n_batches > 1 and b_stride_batch != 0
    strides = [N]
    strides.append(a_stride_row if a_row_major else a_stride_col)
    strides.append(b_stride_row if b_row_major else b_stride_col)
    strides += [a_stride_batch] * a_has_batches + [b_stride_batch] * b_has_batches
    is_float32 = out.dtype == torch.float32
    if rung == 0 and is_float32:
        rung = TENSOR_CORES if tf32 else TILED
    elif rung in (0, TWIN):
        can = can_use_tma(out, a, b, M, N, K, strides)
        if rung == TWIN and not can:
            raise CannotServeError("matmul_kernel cannot take these tensors on this device")
        rung = TWIN if can else TENSOR_CORES
    elif rung == TENSOR_CORES and is_float32 and not tf32:
        raise CannotServeError("the tensor cores have no float32, only tf32")
    if rung != TWIN:
        LADDER[rung](
            out,
            a,
            b,
            bias,
            n_batches,
            M,
            N,
            K,
            a_stride_batch,
            a_stride_row,
            a_stride_col,
            b_stride_batch,
            b_stride_row,
            b_stride_col,
            activation,
        )
        return

    tile = tile_for(n_batches, M, N, K, ACTIVATIONS[activation])
    if can_specialize_warps(tile, out.dtype, n_batches, ACTIVATIONS[activation]):
        warp_specialized.matmul(
            out,
            a,
            b,
            bias,
            M,
            N,
            K,
            (a_stride_row, a_stride_col),
            (b_stride_row, b_stride_col),
            ACTIVATIONS[activation],
            tile.num_programs,
        )
        return
    n_tiles = n_batches * triton.cdiv(M, tile.block_m) * triton.cdiv(N, tile.block_n)
    matmul_kernel[(min(n_tiles, tile.num_programs),)](
        describe(
            out,
            (n_batches, M, N),
            (M * N, N, 1),
            tile.block_m,
            tile.block_n // tile.n_parts,
        ),
        describe(
            a,
            (n_batches if a_has_batches else 1, M, K),
            (a_stride_batch, a_stride_row, a_stride_col),
            tile.block_m,
            tile.block_k,
        ),
        describe(
            b,
            (n_batches if b_has_batches else 1, K, N),
            (b_stride_batch, b_stride_row, b_stride_col),
            tile.block_k,
            tile.block_n,
        ),
        bias,
        n_batches,
        M,
        N,
        K,
        BLOCK_M=tile.block_m,
        BLOCK_N=tile.block_n,
        BLOCK_K=tile.block_k,
        GROUP_M=GROUP_M,
        N_PARTS=tile.n_parts,
        A_HAS_BATCHES=a_has_batches,
        A_ROW_MAJOR=a_row_major,
        B_HAS_BATCHES=b_has_batches,
        B_ROW_MAJOR=b_row_major,
        ACTIVATION=ACTIVATIONS[activation],
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        enable_fp_fusion=True,
    )
