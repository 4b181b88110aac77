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
    b_is_left: bool = False  # of float32: see tf32_twin.py

    def from_left(self) -> "Call":
        """The call as the twin takes it, whose rows are those of the left operand."""
        if not self.b_is_left:
            return self
        return self._replace(
            M=self.N,
            N=self.M,
            a_has_lines=self.b_has_lines,
            b_has_lines=self.a_has_lines,
            b_is_left=False,
        )

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
