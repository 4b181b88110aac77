"""The launches of matmul's last two rungs: copies of operands, products, sums."""

import functools
import math
from typing import Any, NamedTuple

import torch
import triton

from triton_kernels.common.device import current_device
from triton_kernels.common.tensor_map import describe
from triton_kernels.common.vec import VEC_BYTES
from triton_kernels.matmul import align, model
from triton_kernels.matmul.align import matmul_align_kernel, matmul_transpose_kernel
from triton_kernels.matmul.call import Call
from triton_kernels.matmul.parts import launch_sum
from triton_kernels.matmul.tables import TENSOR_CORES_TILES, TF32X3_TILES, TILES
from triton_kernels.matmul.tensor_cores import matmul_tensor_cores_kernel
from triton_kernels.matmul.twin import matmul_kernel

MOST = 2**31 - 1  # what is counted in 32 bits
ALIGN = {"BLOCK_M": align.ROWS, "BLOCK_N": align.COLS, "num_warps": 8}
TRANSPOSE = {
    "BLOCK_M": align.TRANSPOSED_ROWS,
    "BLOCK_N": align.TRANSPOSED_COLS,
    "num_warps": 4,
}
# Of a thread that loads single elements of 2 bytes, so that a multiprocessor has four
# times 128 of them: the compiler would take nearly twice as many.
SINGLE_REGISTERS = 128


class Matrix(NamedTuple):
    """An operand as it lies in memory, whatever its rows are in the product."""

    x: torch.Tensor
    n_rows: int
    n_cols: int
    stride_batch: int
    stride_row: int
    along_k: bool = True  # rows are, rather than columns
    n_planes: int = 1  # that the twin reads, of large and small parts of elements

    def is_aligned(self) -> bool:
        """Whether TMA can copy it: each row begins at a multiple of 16 bytes."""
        starts = self.stride_row, self.stride_batch
        return self.x.data_ptr() % VEC_BYTES == 0 and all(
            start * self.x.element_size() % VEC_BYTES == 0 for start in starts
        )

    def n_matrices(self, n_batches: int) -> int:
        """How many there are: one, where a batch shares it."""
        return n_batches if self.stride_batch else 1

    def is_transposed(self) -> bool:
        """Whether its copy is: the twin's tensor cores take tf32 along k alone."""
        return self.x.dtype == torch.float32 and not self.along_k

    def is_copied(self) -> bool:
        """Whether the twin reads a copy."""
        return self.is_transposed() or self.n_planes > 1 or not self.is_aligned()

    def n_copied(self, n_batches: int) -> int:
        """The elements that are copied for the twin, counted in pairs of accesses."""
        n_elements = self.n_matrices(n_batches) * self.n_rows * self.n_cols
        return n_elements * (1 + self.n_planes) // 2 if self.is_copied() else 0

    def has_lines(self) -> bool:
        """Whether rows of itself, or of its copy, begin lines of the L2."""
        matrix = self.copy_in(self.x) if self.is_copied() else self
        return matrix.stride_row * self.x.element_size() % model.LINE_BYTES == 0

    def copy_in(self, copies: torch.Tensor) -> "Matrix":
        """A copy that the twin can read, in memory that begins there."""
        n_rows, n_cols = self.n_rows, self.n_cols
        if self.is_transposed():
            n_rows, n_cols = n_cols, n_rows
        stride = align.stride_of(n_cols, self.x.element_size())
        stride_batch = n_rows * stride if self.stride_batch else 0
        starts = stride_batch, stride
        return Matrix(copies, n_rows, n_cols, *starts, n_planes=self.n_planes)

    def plane_size(self, n_batches: int) -> int:
        """The elements of a plane of a copy, from whose start another one follows."""
        return self.n_matrices(n_batches) * self.n_rows * self.stride_row

    def copied(self, copies: torch.Tensor, n_batches: int) -> "Matrix":
        """Launches what makes that copy."""
        copy = self.copy_in(copies)
        kernel, sizes = matmul_align_kernel, ALIGN
        if self.is_transposed():
            kernel, sizes = matmul_transpose_kernel, TRANSPOSE
        starts = self.stride_batch, self.stride_row
        may_be_aligned = self.is_transposed() or self.n_planes > 1
        divisor = divisibility(self.x, self.n_cols, *starts) if may_be_aligned else 1
        n_blocks = triton.cdiv(self.n_rows, sizes["BLOCK_M"])
        n_blocks *= triton.cdiv(self.n_cols, sizes["BLOCK_N"])
        kernel[(n_blocks * self.n_matrices(n_batches),)](
            *(copies, self.x, self.n_rows, self.n_cols),
            *(self.stride_batch, self.stride_row),
            *(copy.stride_row, copy.plane_size(n_batches)),
            **sizes,
            DIVISIBILITY=divisor,
            NUM_PLANES=self.n_planes,
            enable_fp_fusion=True,
            launch_pdl=current_device().has_dependent_launches,
        )
        return copy


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


def divisibility(x, *sizes):
    """What divides all that decides how wide a matrix can be read, or written.

    Of an address Triton notices only whether 16 divides it.
    """
    return math.gcd(16, *sizes) if x.data_ptr() % VEC_BYTES == 0 else 1


def map_of(matrix, n_batches, block, is_row_major, rounds=False):
    """How TMA finds blocks of an operand, whose own rows those of memory may not be.

    Planes follow each other as batches do.
    """
    n_matrices = matrix.n_planes * matrix.n_matrices(n_batches)
    stride_batch = matrix.stride_batch or matrix.n_rows * matrix.stride_row
    sizes = (n_matrices, matrix.n_rows, matrix.n_cols)
    block = block if is_row_major else (block[0], block[2], block[1])
    strides = (stride_batch, matrix.stride_row, 1)
    return describe(matrix.x, sizes, strides, block, rounds)


def twin_tiles(call):
    """The table of the tiles that the twin computes a call in."""
    return TILES if call.n_planes == 1 else TF32X3_TILES


def with_copies(matrices, copies, n_batches):
    """Operands, or their copies where the twin cannot read them, a's first."""
    for matrix in matrices:
        if matrix.is_copied():
            copy = matrix.copied(copies, n_batches)
            copies = copies[copy.n_planes * copy.plane_size(n_batches) :]
            yield copy
        else:
            yield matrix


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


def launch_twin(out, matrices, bias, call, cut, parts, copies, layout):
    """Launches the twin, and what copies its operands, and adds up parts of tiles."""
    a, b = with_copies(matrices, copies, call.n_batches)
    tile = twin_tiles(call)[cut.tile]
    depth = model.twin_depth(call, tile)
    n_stores = tile.n_stores * out.element_size() // 2  # each of as many bytes
    is_tf32 = out.dtype == torch.float32
    if is_tf32:  # both along k, as they are or as they were copied
        layout = {"A_ROW_MAJOR": True, "B_ROW_MAJOR": False}
    n_batches, M, N, K = call.n_batches, call.M, call.N, call.K
    is_shared = cut.n_streamed > 0
    a_is_shared, b_is_shared = a.stride_batch == 0, b.stride_batch == 0
    a_block = (1, tile.block_m, depth)
    b_block = (1, depth, tile.block_n)
    out_block = (1, tile.block_m, tile.block_n // n_stores)
    if call.out_is_aligned:
        out_map = map_of(Matrix(out, M, N, M * N, N), n_batches, out_block, True)
    matmul_kernel[(cut.n_blocks,)](
        out_map if call.out_is_aligned else out,
        map_of(a, n_batches, a_block, layout["A_ROW_MAJOR"], is_tf32),
        map_of(b, n_batches, b_block, layout["B_ROW_MAJOR"], is_tf32),
        *(bias, parts if is_shared else None, n_batches, M, N, K, cut.n_streamed),
        **constants(tile, call, depth),
        **layout,
        NUM_PLANES=a.n_planes,
        N_STORES=n_stores,
        OUT_HAS_MAP=call.out_is_aligned,
        A_IS_SHARED=a_is_shared,
        B_IS_SHARED=b_is_shared,
        launch_pdl=begins_early(call, tile, cut),
    )
    if is_shared:
        n_steps = triton.cdiv(K, depth)
        out_divisibility = divisibility(out, N)
        launch_sum(out, parts, bias, call, tile, n_steps, cut, out_divisibility)
