"""The launches of matmul's last two rungs: products, and sums of parts."""

import functools
from typing import Any

import torch
import triton
from triton.experimental.gluon.language import NVMMASharedLayout

from triton_kernels.common.device import current_device
from triton_kernels.common.tensor_map import describe
from triton_kernels.matmul import model
from triton_kernels.matmul.call import Call, Precision
from triton_kernels.matmul.copies import Matrix, divisibility, with_copies
from triton_kernels.matmul.parts import launch_sum
from triton_kernels.matmul.tables import (
    TENSOR_CORES_TILES,
    TF32_TILES,
    TF32X3_TILES,
    TILES,
    MatmulTile,
)
from triton_kernels.matmul.tensor_cores import matmul_tensor_cores_kernel
from triton_kernels.matmul.tf32_parts import BOX_SIZE
from triton_kernels.matmul.tf32_twin import matmul_tf32_kernel, rounded_maps
from triton_kernels.matmul.twin import matmul_kernel

MOST = 2**31 - 1  # what is counted in 32 bits
# Of a thread that loads single elements of 2 bytes, so that a multiprocessor has four
# times 128 of them: the compiler would take nearly twice as many.
SINGLE_REGISTERS = 128


def constants(tile: Any, call: Call, block_k: int) -> dict[str, Any]:
    """What a kernel is compiled for, with a line of any table."""
    return {
        "ACTIVATION": call.activation,
        "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n,
        "BLOCK_K": block_k,
        "num_stages": tile.num_stages,
        "num_warps": tile.num_warps,
        "enable_fp_fusion": True,
    }


def map_of(matrix, n_batches, block, **options):
    """How TMA finds blocks of an operand's rows in memory, with their columns.

    Planes follow each other as batches do.
    """
    n_matrices = matrix.n_planes * matrix.n_matrices(n_batches)
    stride_batch = matrix.stride_batch or matrix.n_rows * matrix.stride_row
    sizes = (n_matrices, matrix.n_rows, matrix.n_cols)
    strides = (stride_batch, matrix.stride_row, 1)
    return describe(matrix.x, sizes, strides, (1, *block), **options)


def twin_tiles(call: Call) -> tuple[MatmulTile, ...]:
    """The table of the tiles that the twin computes a call in."""
    if call.dtype != torch.float32:
        return TILES
    return TF32X3_TILES if call.precision == Precision.TF32X3 else TF32_TILES


@functools.lru_cache(maxsize=4096)
def begins_early(call, tile, cut):
    """Whether the twin begins while the launch before it ends: where it is short."""
    return model.twin_cycles(call, tile, cut) < model.LONG_CYCLES


def next_begins(n_programs):
    """When the launch behind one of tensor_cores may begin.

    Where many multiprocessors have no program, at once: the next ones find these. Where
    all have several, when they store. In between, only when all have ended: the next
    ones would gather where there is room by then, and not be spread evenly.
    """
    n_sms = current_device().n_sms
    return 1 if n_programs <= n_sms // 2 else 2 if n_programs > n_sms else 0


def launch_tensor_cores(out, a, b, bias, strides, call, cut, parts, layout):
    """Launches the rung tensor_cores, and what adds up its parts of tiles."""
    tile = TENSOR_CORES_TILES[cut.tile]
    depth = model.step_depth(call, tile)
    n_tiles = call.n_tiles(tile.block_m, tile.block_n)
    n_parts = cut.n_blocks // n_tiles if cut.n_streamed > 0 else 1
    is_shared = n_parts > 1
    # Offsets within a tile, from where it begins in a or b.
    most = max(tile.block_m, tile.block_n, depth) * max(strides)
    part_steps = triton.cdiv(triton.cdiv(call.K, depth), n_parts)
    matmul_tensor_cores_kernel[(n_tiles * n_parts,)](
        *(out, a, b, bias, parts if is_shared else None),
        *(call.M, call.N, call.K, *strides, n_parts, part_steps),
        next_begins(n_tiles * n_parts),
        **constants(tile, call, depth),
        **layout,
        HAS_WORDS=call.has_words,
        OFFSET_BITS=32 if most <= MOST else 64,
        maxnreg=None if call.has_words else SINGLE_REGISTERS,
        launch_pdl=current_device().has_dependent_launches,
    )
    if is_shared:
        out_divisibility = layout["OUT_DIVISIBILITY"]
        n_steps = n_parts * part_steps
        launch_sum(out, parts, bias, call, tile, n_steps, cut, out_divisibility)


def launch_twin(out, matrices, bias, call, cut, parts, copies):
    """Launches the twin, and what copies its operands, and adds up parts of tiles."""
    a, b = with_copies(matrices, copies, call.n_batches)
    tile = TILES[cut.tile]
    depth = model.twin_depth(call, tile)
    n_batches, M, N, K = call.n_batches, call.M, call.N, call.K
    is_shared = cut.n_streamed > 0
    a_block, b_block = (tile.block_m, depth), (tile.block_n, depth)
    out_block = (tile.block_m, tile.block_n // tile.n_stores)
    if call.out_is_aligned:
        out_map = map_of(Matrix(out, M, N, M * N, N), n_batches, out_block)
    matmul_kernel[(cut.n_blocks,)](
        out_map if call.out_is_aligned else out,
        map_of(a, n_batches, a_block if a.along_k else a_block[::-1]),
        map_of(b, n_batches, b_block if b.along_k else b_block[::-1]),
        *(bias, parts if is_shared else None, n_batches, M, N, K, cut.n_streamed),
        **constants(tile, call, depth),
        N_STORES=tile.n_stores,
        OUT_HAS_MAP=call.out_is_aligned,
        A_IS_SHARED=a.stride_batch == 0,
        A_ROW_MAJOR=a.along_k,
        B_IS_SHARED=b.stride_batch == 0,
        B_ROW_MAJOR=not b.along_k,
        launch_pdl=begins_early(call, tile, cut),
    )
    if is_shared:
        n_steps, out_divisibility = triton.cdiv(K, depth), divisibility(out, N)
        launch_sum(out, parts, bias, call, tile, n_steps, cut, out_divisibility)


_BOX_SIZE = BOX_SIZE.value
# Of float32 in shared memory: rows of 128 bytes.
_SWIZZLED = NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=3)


def launch_tf32_twin(out, matrices, bias, call, cut, parts, copies):
    """Likewise of float32, whose tiles' rows are those of the left operand."""
    a, b = with_copies(matrices, copies, call.n_batches)
    left, right = (b, a) if call.b_is_left else (a, b)
    tile = twin_tiles(call)[cut.tile]
    depth = model.twin_depth(call, tile)
    n_batches, M, N, K = call.n_batches, call.M, call.N, call.K
    is_shared = cut.n_streamed > 0
    box = (_BOX_SIZE, depth) if left.along_k else (depth, _BOX_SIZE)
    out_box = (_BOX_SIZE, _BOX_SIZE)
    if call.out_is_aligned:
        out_map = map_of(
            Matrix(out, M, N, M * N, N), n_batches, out_box, layout=_SWIZZLED
        )
    right_block = (tile.block_n, depth)
    rounds = "left_map" in rounded_maps({"NUM_PLANES": right.n_planes})
    matmul_tf32_kernel[(cut.n_blocks,)](
        out_map if call.out_is_aligned else out,
        map_of(left, n_batches, box, rounds=rounds, layout=_SWIZZLED),
        map_of(right, n_batches, right_block, rounds=True, layout=_SWIZZLED),
        *(bias, parts if is_shared else None, n_batches, M, N, K, cut.n_streamed),
        BLOCK_M=tile.block_m,
        BLOCK_N=tile.block_n,
        NUM_STAGES=tile.num_stages,
        NUM_PLANES=right.n_planes,
        OUT_HAS_MAP=call.out_is_aligned,
        LEFT_IS_SHARED=left.stride_batch == 0,
        RIGHT_IS_SHARED=right.stride_batch == 0,
        B_IS_LEFT=call.b_is_left,
        ACTIVATION=call.activation,
        num_warps=4,
        enable_fp_fusion=True,
        launch_pdl=begins_early(call, tile, cut),
    )
    if is_shared:
        if call.b_is_left:
            tile = tile._replace(block_m=tile.block_n, block_n=tile.block_m)
        n_steps, out_divisibility = triton.cdiv(K, depth), divisibility(out, N)
        launch_sum(out, parts, bias, call, tile, n_steps, cut, out_divisibility)
