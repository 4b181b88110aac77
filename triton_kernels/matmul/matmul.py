"""A product of matrices, fused with a bias and an activation.

  matmul: out[i, j] = f(sum over k of a[i, k] b[k, j] + bias[j])

Layout   out: contiguous. a, b: rows or columns contiguous, with any stride between
         them, and any stride between batches, 0 for an operand that all batches share.
Traffic  an element of a or b that a program has loaded serves all columns or rows of
         its tile. Large products are bound by the tensor cores, those of few rows by b.
Limits   accumulates in float32, so float16 and bfloat16 are rounded once. Tensor cores
         take float32 only as tf32, rounded to 11 bits, or as the sum of two such
         numbers (tf32x3); where that will not do, FMA computes.
Mirror   csrc/matmul/matmul.cu differs in matmul_kernel, because Triton gives all warps
         of a program the same work, decides itself when they wait, and has no clusters
         whose blocks load for each other, and in
         matmul_tensor_cores_kernel, which reads aligned copies of operands there alone,
         and has a multiprocessor to itself where it asks for most of the shared memory.
         matmul_tiled_kernel, which transposes what it copies, never has b on the left
         there
Source   the rungs tiled and tensor_cores, one step at a time; NVIDIA, CUTLASS:
         persistent, warp-specialised kernels for Hopper
"""

import sys
from typing import NamedTuple

import torch
import triton

from triton_kernels.common.device import Device, current_device
from triton_kernels.common.epilogue import ACTIVATIONS
from triton_kernels.common.math import INTERPRETED
from triton_kernels.common.table import FIRST, CannotServeError
from triton_kernels.matmul import model, model_tiled
from triton_kernels.matmul.call import Call, Cut, MatmulRung, Precision
from triton_kernels.matmul.copies import Matrix, choose_left, divisibility
from triton_kernels.matmul.first import matmul_first_kernel
from triton_kernels.matmul.launches import (
    MOST,
    launch_tensor_cores,
    launch_tf32_twin,
    launch_twin,
    twin_tiles,
)
from triton_kernels.matmul.tables import TENSOR_CORES_TILES
from triton_kernels.matmul.tiled import launch_tiled


class Regime(NamedTuple):
    """The calls that a rung can serve."""

    rung: MatmulRung
    takes_ieee: bool = True  # float32 as IEEE 754 has it
    takes_tf32: bool = True  # float32 that may be rounded to tf32
    takes_tf32x3: bool = True
    needs_tensor_maps: bool = False
    needs_compiler: bool = False  # it is written in Gluon, which has no interpreter
    min_arch: int = 0  # the first architecture, such as 90
    max_arch: int = sys.maxsize

    def serves(self, device: Device, call: Call) -> bool:
        """Whether a call is one of them."""
        takes = self.takes_ieee, self.takes_tf32, self.takes_tf32x3
        return (
            (takes[call.precision] or call.dtype != torch.float32)
            and (call.has_tensor_maps or not self.needs_tensor_maps)
            and not (self.needs_compiler and INTERPRETED)
            and self.min_arch <= device.arch <= self.max_arch
        )


# A call takes the first rung that can serve it; between the twin and tensor_cores, the
# model chooses. The twin takes float32 on Hopper. From architecture 120 on, shared
# memory is too small for its tiles.
REGIMES = (
    Regime(
        MatmulRung.TWIN,
        takes_ieee=False,
        takes_tf32=False,
        takes_tf32x3=False,
        needs_tensor_maps=True,
        min_arch=90,
        max_arch=119,
    ),
    Regime(
        MatmulRung.TWIN,
        takes_ieee=False,
        needs_tensor_maps=True,
        needs_compiler=True,
        min_arch=90,
        max_arch=90,
    ),
    Regime(MatmulRung.TENSOR_CORES, takes_ieee=False, takes_tf32x3=False),
    Regime(MatmulRung.TILED),
    Regime(MatmulRung.FIRST),
)


def cut_of(
    call: Call, rungs: list[MatmulRung], asked: Cut, may_share: bool
) -> tuple[MatmulRung, Cut]:
    """How a call is cut up by one of these rungs: as asked for, or by the model."""
    if asked.tile >= 0:
        return rungs[0], asked
    return model.choose(
        call,
        twin_tiles(call) if MatmulRung.TWIN in rungs else (),
        TENSOR_CORES_TILES if MatmulRung.TENSOR_CORES in rungs else (),
        current_device().n_sms,
        may_share,
    )


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
    precision,
    tile,
    n_blocks,
    n_streamed,
    parts,
    copies,
    rung,
):
    """Launches the kernels for a call on the current device and stream.

    tile, n_blocks and n_streamed: a Cut with its tile counted from 1, by which the rung
    is tried; 0 for the one that the model chooses. parts: memory of any contents for
    two parts of the largest tile for each multiprocessor; None where tiles are not
    shared. copies: memory for operands that the twin cannot read, with rows that are
    aligned and, for tf32, lie along k, a's first; in two planes for tf32x3; None where
    none may be copied.
    """
    a_stride_batch, a_stride_row, a_stride_col = strides[:3]
    b_stride_batch, b_stride_row, b_stride_col = strides[3:]
    a_row_major, b_row_major = a_stride_col == 1, b_stride_col == 1
    a_stride = a_stride_row if a_row_major else a_stride_col
    b_stride = b_stride_row if b_row_major else b_stride_col
    a_size, b_size = K if a_row_major else M, N if b_row_major else K
    layout = {"A_ROW_MAJOR": a_row_major, "B_ROW_MAJOR": b_row_major}
    divisors = {
        "A_DIVISIBILITY": divisibility(a, a_size, a_stride_batch, a_stride),
        "B_DIVISIBILITY": divisibility(b, b_size, b_stride_batch, b_stride),
        "OUT_DIVISIBILITY": divisibility(out, N),
    }
    a_rows, b_rows = M if a_row_major else K, K if b_row_major else N
    a_strides, b_strides = (a_stride_batch, a_stride), (b_stride_batch, b_stride)
    a_matrix = Matrix(a, a_rows, a_size, *a_strides, a_row_major)
    b_matrix = Matrix(b, b_rows, b_size, *b_strides, not b_row_major)
    is_float32, b_is_left = out.dtype == torch.float32, False
    if is_float32:
        b_is_left, a_matrix, b_matrix = choose_left(
            a_matrix, b_matrix, n_batches, precision
        )
    # Tensor maps need aligned rows, and count in 32 bits.
    device, element_bytes = current_device(), out.element_size()
    n_copied = a_matrix.n_copied(n_batches) + b_matrix.n_copied(n_batches)
    has_tensor_maps = (
        all(0 < size <= MOST - 256 for size in (M, N, K))
        and n_batches * triton.cdiv(M, 64) * triton.cdiv(N, 64) <= MOST // 64
        and (n_copied == 0 or (copies is not None and device.arch == 90))
    )
    read_by = min(divisors["A_DIVISIBILITY"], divisors["B_DIVISIBILITY"])
    call = Call(
        *(out.dtype, Precision(precision), n_batches, M, N, K),
        ACTIVATIONS[activation],
        has_tensor_maps,
        has_vectors=min(divisors.values()) * element_bytes >= 8,
        has_words=read_by * element_bytes >= 4,
        a_has_lines=a_matrix.has_lines(),
        b_has_lines=b_matrix.has_lines(),
        out_is_aligned=Matrix(out, M, N, M * N, N).is_aligned(),
        n_copied=n_copied,
        b_is_left=b_is_left,
    )
    rungs = [
        each.rung
        for each in REGIMES
        if rung in (MatmulRung.CHOSEN, each.rung) and each.serves(device, call)
    ]
    if not rungs:
        raise CannotServeError("matmul: this rung has no kernel for such a call here")

    chosen, arguments = rungs[0], (out, a, b, bias, M, N, K, *strides)
    # On the CPU there is memory for parts, whatever GPU is planned for.
    may_share = parts is not None and device.arch == 90
    asked = Cut(tile - 1, n_blocks, n_streamed)
    if chosen == MatmulRung.FIRST:
        n_tiles = call.n_tiles(32, 32)
        sizes = {**FIRST, "BLOCK_M": 32, "BLOCK_N": 32}
        matmul_first_kernel[(n_tiles,)](*arguments, **sizes, ACTIVATION=call.activation)
    elif chosen == MatmulRung.TILED:
        only_b_lies_along_k = not (a_row_major or b_row_major)
        number = int(only_b_lies_along_k) if call.has_vectors else 2
        cut = asked
        if tile == 0:
            cut = model_tiled.choose(call, number, device.n_sms, may_share)
        launch_tiled(arguments, call, cut, parts, layout | divisors)
    else:
        chosen, cut = cut_of(call, rungs, asked, may_share)
        if chosen == MatmulRung.TWIN:
            launch = launch_tf32_twin if is_float32 else launch_twin
            launch(out, (a_matrix, b_matrix), bias, call, cut, parts, copies)
        else:
            launch_tensor_cores(
                *(out, a, b, bias, strides, call, cut, parts, layout | divisors)
            )
