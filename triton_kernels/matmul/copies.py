"""What a product is of, and the launches that copy operands where they have to be.

The twins read aligned rows alone.
"""

import math
from typing import NamedTuple

import torch
import triton

from triton_kernels.common.device import current_device
from triton_kernels.common.vec import VEC_BYTES
from triton_kernels.matmul import align, model
from triton_kernels.matmul.align import matmul_align_kernel, matmul_transpose_kernel
from triton_kernels.matmul.call import Precision

ALIGN = {"BLOCK_M": align.ROWS, "BLOCK_N": align.COLS, "num_warps": 8}
TRANSPOSE = {
    "BLOCK_M": align.TRANSPOSED_ROWS,
    "BLOCK_N": align.TRANSPOSED_COLS,
    "num_warps": 4,
}


class Matrix(NamedTuple):
    """An operand as it lies in memory, whatever its rows are in the product."""

    x: torch.Tensor
    n_rows: int
    n_cols: int
    stride_batch: int
    stride_row: int
    along_k: bool = True  # rows are, rather than columns
    is_transposed: bool = False  # the twin reads a copy with its columns as rows
    n_planes: int = 1  # 2: a copy with the large and the small parts of its elements

    def is_aligned(self) -> bool:
        """Whether TMA can copy it: each row begins at a multiple of 16 bytes."""
        starts = self.stride_row, self.stride_batch
        return self.x.data_ptr() % VEC_BYTES == 0 and all(
            start * self.x.element_size() % VEC_BYTES == 0 for start in starts
        )

    def n_matrices(self, n_batches: int) -> int:
        """How many there are: one, where a batch shares it."""
        return n_batches if self.stride_batch else 1

    def is_copied(self) -> bool:
        """Whether the twin reads a copy."""
        return self.is_transposed or self.n_planes > 1 or not self.is_aligned()

    def n_elements(self, n_batches: int) -> int:
        """Those of all of them."""
        return self.n_matrices(n_batches) * self.n_rows * self.n_cols

    def n_copied(self, n_batches: int) -> int:
        """The elements that are copied for the twin, counted in pairs of accesses."""
        n_accesses = self.n_elements(n_batches) * (1 + self.n_planes)
        return n_accesses // 2 if self.is_copied() else 0

    def has_lines(self) -> bool:
        """Whether rows of itself, or of its copy, begin lines of the L2."""
        matrix = self.copy_in(self.x) if self.is_copied() else self
        return matrix.stride_row * self.x.element_size() % model.LINE_BYTES == 0

    def copy_in(self, copies: torch.Tensor) -> "Matrix":
        """A copy that the twin can read, in memory that begins there."""
        n_rows, n_cols = self.n_rows, self.n_cols
        if self.is_transposed:
            n_rows, n_cols = n_cols, n_rows
        stride = align.stride_of(n_cols, self.x.element_size())
        stride_batch = n_rows * stride if self.stride_batch else 0
        starts = stride_batch, stride
        along_k = self.along_k or self.is_transposed
        return Matrix(copies, n_rows, n_cols, *starts, along_k, n_planes=self.n_planes)

    def plane_size(self, n_batches: int) -> int:
        """The elements of a plane of a copy, from whose start another one follows."""
        return self.n_matrices(n_batches) * self.n_rows * self.stride_row

    def copied(self, copies: torch.Tensor, n_batches: int) -> "Matrix":
        """Launches what makes that copy."""
        copy = self.copy_in(copies)
        kernel, sizes = matmul_align_kernel, ALIGN
        if self.is_transposed:
            kernel, sizes = matmul_transpose_kernel, TRANSPOSE
        starts = self.stride_batch, self.stride_row
        may_be_aligned = self.is_transposed or self.n_planes > 1
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


def divisibility(x, *sizes):
    """What divides all that decides how wide a matrix can be read, or written.

    Of an address Triton notices only whether 16 divides it.
    """
    return math.gcd(16, *sizes) if x.data_ptr() % VEC_BYTES == 0 else 1


def choose_left(a, b, n_batches, precision):
    """Whether b is on the left of float32, and a and b with the copies that it takes.

    Where only one operand could not be on the right without a copy, that one is on the
    left, or else the larger one.
    """
    splits = precision == Precision.TF32X3
    a_needs_copy, b_needs_copy = splits or not a.along_k, splits or not b.along_k
    if a_needs_copy != b_needs_copy:
        b_is_left = b_needs_copy
    else:
        b_is_left = a.n_elements(n_batches) < b.n_elements(n_batches)
    right = a if b_is_left else b
    right = right._replace(is_transposed=not right.along_k, n_planes=2 if splits else 1)
    return (True, right, b) if b_is_left else (False, a, right)


def with_copies(matrices, copies, n_batches):
    """Operands, or their copies where the twin cannot read them, a's first."""
    for matrix in matrices:
        if matrix.is_copied():
            copy = matrix.copied(copies, n_batches)
            copies = copies[copy.n_planes * copy.plane_size(n_batches) :]
            yield copy
        else:
            yield matrix
