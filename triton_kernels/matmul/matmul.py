"""A product of matrices, fused with a bias and an activation.

  matmul: out[i, j] = f(sum over k of a[i, k] b[k, j] + bias[j])

Layout   out: contiguous. a, b: rows or columns contiguous, with any stride between
         them, and any stride between batches, 0 for an operand that all batches share.
Traffic  an element of a or b that a program has loaded serves all columns or rows of
         its tile. Large products are bound by the tensor cores, those of few rows by b.
Limits   accumulates in float32, so float16 and bfloat16 are rounded once. Tensor cores
         take float32 only as tf32; where that will not do, FMA computes.
Mirror   csrc/matmul/matmul.cu differs in matmul_kernel, because Triton gives all warps
         of a program the same work, and decides itself when they wait
Source   the rungs tiled and tensor_cores, one step at a time; NVIDIA, CUTLASS:
         persistent, warp-specialised kernels for Hopper
"""

import math
import sys
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple

import torch
import triton

from triton_kernels.common.device import Device, current_device
from triton_kernels.common.epilogue import ACTIVATIONS
from triton_kernels.common.table import FIRST, CannotServeError
from triton_kernels.common.tensor_map import describe
from triton_kernels.common.vec import VEC_BYTES
from triton_kernels.matmul import model
from triton_kernels.matmul.first import matmul_first_kernel
from triton_kernels.matmul.model import TILES, Call, Cut
from triton_kernels.matmul.parts import COUNT, matmul_count_kernel
from triton_kernels.matmul.tables import TENSOR_CORES_TILES, TILED_TILES
from triton_kernels.matmul.tensor_cores import matmul_tensor_cores_kernel
from triton_kernels.matmul.tiled import matmul_tiled_kernel
from triton_kernels.matmul.twin import matmul_kernel

MOST = 2**31 - 1  # what is counted in 32 bits


class MatmulRung(IntEnum):
    """What computes a call: what REGIMES chooses, or a rung of the ladder."""

    CHOSEN = 0
    FIRST = 1
    TILED = 2
    TENSOR_CORES = 3
    TWIN = 4


class Regime(NamedTuple):
    """The calls that a rung can serve."""

    rung: MatmulRung
    takes_ieee: bool = True  # float32 as IEEE 754 has it
    takes_tf32: bool = True  # float32 that may be rounded to tf32
    needs_tensor_maps: bool = False
    min_arch: int = 0  # the first architecture, such as 90
    max_arch: int = sys.maxsize

    def serves(self, device: Device, call: Call) -> bool:
        """Whether a call is one of them."""
        takes_float32 = self.takes_tf32 if call.tf32 else self.takes_ieee
        return (
            (takes_float32 or call.dtype != torch.float32)
            and (call.has_tensor_maps or not self.needs_tensor_maps)
            and self.min_arch <= device.arch <= self.max_arch
        )


# A call takes the first rung that can serve it. From architecture 120 on, shared memory
# is too small for the twin's tiles.
REGIMES = (
    Regime(MatmulRung.TWIN, False, False, True, min_arch=90, max_arch=119),
    Regime(MatmulRung.TENSOR_CORES, takes_ieee=False),
    Regime(MatmulRung.TILED),
    Regime(MatmulRung.FIRST),
)


def choose(table: Iterable[Any], call: Call) -> Any:
    """The first line that is for a call on the current device."""
    device = current_device()
    for line in table:
        if line.serves(device, call):
            return line
    raise CannotServeError("matmul: this rung has no kernel for such a call here")


def constants(tile: Any, call: Call) -> dict[str, Any]:
    """What a kernel is compiled for, with a line of any table."""
    return {
        "ACTIVATION": call.activation,
        "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n,
        "BLOCK_K": tile.block_k,
        "num_stages": tile.num_stages,
        "num_warps": tile.num_warps,
        "enable_fp_fusion": True,
    }


def matmul(
    out,
    a,
    b,
    bias,
    n_batches,
    M,
    N,
    K,
    *strides,
    activation,
    tf32,
    tile,
    n_blocks,
    n_streamed,
    parts,
    n_arrived,
    rung,
):
    """Launches the kernel for a call on the current device and stream.

    tile, n_blocks and n_streamed: a Cut with its tile counted from 1, by which the twin
    is tried; 0 for the one that the model chooses. parts, n_arrived: memory of any
    contents for two parts of the largest tile for each multiprocessor, and four counts;
    None where tiles are not shared.
    """
    a_stride_batch, a_stride_row, a_stride_col = strides[:3]
    b_stride_batch, b_stride_row, b_stride_col = strides[3:]
    a_row_major, b_row_major = a_stride_col == 1, b_stride_col == 1
    a_stride = a_stride_row if a_row_major else a_stride_col
    b_stride = b_stride_row if b_row_major else b_stride_col
    a_size, b_size = K if a_row_major else M, N if b_row_major else K
    layout = {"A_ROW_MAJOR": a_row_major, "B_ROW_MAJOR": b_row_major}
    # What divides all that decides how wide a matrix can be read, or written.
    divisors = {
        "A_DIVISIBILITY": math.gcd(a_size, a_stride_batch, a_stride, 16),
        "B_DIVISIBILITY": math.gcd(b_size, b_stride_batch, b_stride, 16),
        "OUT_DIVISIBILITY": math.gcd(N, 16),
    }
    # Tensor maps need aligned rows, as vectors do, and count in 32 bits.
    element_bytes = out.element_size()
    aligned = (N, a_stride, b_stride, a_stride_batch, b_stride_batch)
    has_tensor_maps = (
        all(0 < size <= MOST - 256 for size in (M, N, K))
        and n_batches * triton.cdiv(M, 64) * triton.cdiv(N, 64) <= MOST // 64
        and all(stride * element_bytes % VEC_BYTES == 0 for stride in aligned)
        and all(x.data_ptr() % VEC_BYTES == 0 for x in (out, a, b))
    )
    call = Call(
        *(out.dtype, tf32, n_batches, M, N, K, ACTIVATIONS[activation]),
        has_tensor_maps,
        has_vectors=min(divisors.values()) * element_bytes >= 8,
        a_has_lines=a_stride % model.LINE_SIZE == 0,
        b_has_lines=b_stride % model.LINE_SIZE == 0,
    )
    regimes = (each for each in REGIMES if rung in (MatmulRung.CHOSEN, each.rung))
    chosen = choose(regimes, call).rung

    arguments = (out, a, b, bias, M, N, K, *strides)
    if chosen == MatmulRung.FIRST:
        n_tiles = n_batches * triton.cdiv(M, 32) * triton.cdiv(N, 32)
        sizes = {**FIRST, "BLOCK_M": 32, "BLOCK_N": 32}
        matmul_first_kernel[(n_tiles,)](*arguments, **sizes, ACTIVATION=call.activation)
    elif chosen != MatmulRung.TWIN:
        is_tiled = chosen == MatmulRung.TILED
        kernel = matmul_tiled_kernel if is_tiled else matmul_tensor_cores_kernel
        tile = choose(TILED_TILES if is_tiled else TENSOR_CORES_TILES, call)
        kernel[(call.n_tiles(tile.block_m, tile.block_n),)](
            *arguments, **constants(tile, call), **layout, **divisors
        )
    else:
        cut = Cut(tile - 1, n_blocks, n_streamed)
        if tile == 0:
            device = current_device()
            # On the CPU there is memory for parts, whatever GPU is planned for.
            may_share = parts is not None and device.arch == 90
            cut = model.choose(call, TILES, device.n_sms, may_share)
        tile = TILES[cut.tile]
        is_shared = cut.n_streamed > 0
        if is_shared:
            matmul_count_kernel[(1,)](n_arrived, cut.n_streamed, **COUNT)
        a_is_shared, b_is_shared = a_stride_batch == 0, b_stride_batch == 0
        a_sizes = (1 if a_is_shared else n_batches, M, K)
        b_sizes = (1 if b_is_shared else n_batches, K, N)
        out_block = (1, tile.block_m, tile.block_n // tile.n_stores)
        matmul_kernel[(cut.n_blocks,)](
            describe(out, (n_batches, M, N), (M * N, N, 1), out_block),
            describe(a, a_sizes, strides[:3], (1, tile.block_m, tile.block_k)),
            describe(b, b_sizes, strides[3:], (1, tile.block_k, tile.block_n)),
            bias,
            parts if is_shared else None,
            n_arrived if is_shared else None,
            *(n_batches, M, N, K),
            cut.n_streamed,
            **constants(tile, call),
            **layout,
            N_STORES=tile.n_stores,
            A_IS_SHARED=a_is_shared,
            B_IS_SHARED=b_is_shared,
        )
