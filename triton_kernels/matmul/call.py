"""A call of matmul, and how it is cut up."""

from enum import IntEnum
from typing import NamedTuple

import torch


def ceil_div(a: int, b: int) -> int:
    """The quotient, rounded up."""
    return -(-a // b)


class MatmulRung(IntEnum):
    """What computes a call: what the model chooses, or a rung of the ladder."""

    CHOSEN = 0
    FIRST = 1
    TILED = 2
    TENSOR_CORES = 3
    TWIN = 4


class Precision(IntEnum):
    """How float32 is multiplied: as IEEE 754 has it, or rounded to tf32.

    Or as the sum of two tf32 numbers.
    """

    IEEE = 0
    TF32 = 1
    TF32X3 = 2


def planes_of(dtype: torch.dtype, precision: Precision) -> int:
    """Two, where elements are split into large and small parts of tf32."""
    return 2 if dtype == torch.float32 and precision == Precision.TF32X3 else 1


class Call(NamedTuple):
    """What rung, tile and cut are chosen by."""

    dtype: torch.dtype
    precision: Precision
    n_batches: int
    M: int
    N: int
    K: int
    activation: str
    has_tensor_maps: bool  # a and b, or copies of them
    has_vectors: bool  # all is read and written by 8 bytes or more at a time
    has_words: bool  # a and b are read by 4 bytes or more at a time
    a_has_lines: bool  # each row, or column, begins a line of the L2 if the first does
    b_has_lines: bool
    out_is_aligned: bool
    n_copied: int  # elements that the twin needs copies of, in twice as many accesses

    @property
    def n_planes(self) -> int:
        """Those of operands that the twin reads."""
        return planes_of(self.dtype, self.precision)

    def n_tiles(self, block_m: int, block_n: int) -> int:
        """How many tiles there are of such a size."""
        return self.n_batches * ceil_div(self.M, block_m) * ceil_div(self.N, block_n)


class Cut(NamedTuple):
    """How a call is cut up; programs share the steps of the first n_streamed tiles.

    Those are 0, or as many that no program is left without a step.
    """

    tile: int  # its place in the table of its rung
    n_blocks: int
    n_streamed: int
