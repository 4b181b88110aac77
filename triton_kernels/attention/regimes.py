"""Which rung computes a call of attention."""

import sys
from enum import IntEnum
from typing import NamedTuple

import torch

from triton_kernels.common.device import Device
from triton_kernels.common.math import INTERPRETED

# A positive scale, and what is smaller becomes 0.
TINY = torch.finfo(torch.float32).tiny
MOST = 1 << 30  # of what is counted in 32 bits


class AttentionRung(IntEnum):
    """What computes a call: what REGIMES chooses, or a rung of the ladder."""

    CHOSEN = 0
    FIRST = 1
    TILED = 2
    TENSOR_CORES = 3
    TWIN = 4


class Call(NamedTuple):
    """What rung and tile are chosen by."""

    dtype: torch.dtype
    n_queries: int
    head_dim: int
    is_plain: bool  # scores are scaled by a positive number, and no more
    counts_in_int: bool  # positions of queries and keys, and tiles of those owned
    has_tensor_maps: bool  # all tensors with rows of head_dim
    has_vectors: bool  # all is read and written by 8 bytes or more at a time
    is_packed: bool  # sequences of any lengths follow each other


class Regime(NamedTuple):
    """The calls that a rung can serve."""

    rung: AttentionRung
    takes_float32: bool = True
    counts_in_int: bool = False
    needs_plain: bool = False
    needs_tensor_maps: bool = False
    needs_compiler: bool = False  # it is written in Gluon, which has no interpreter
    min_arch: int = 0  # the first architecture, such as 90
    max_arch: int = sys.maxsize
    takes_packed: bool = True

    def serves(self, device: Device, call: Call) -> bool:
        """Whether a call is one of them."""
        return (
            (self.takes_float32 or call.dtype != torch.float32)
            and (call.counts_in_int or not self.counts_in_int)
            and (call.is_plain or not self.needs_plain)
            and (call.has_tensor_maps or not self.needs_tensor_maps)
            and not (self.needs_compiler and INTERPRETED)
            and (self.takes_packed or not call.is_packed)
            and self.min_arch <= device.arch <= self.max_arch
        )


# A call, of the backward too, takes the first rung that can serve it; never the first
# of the ladder, whose scores it has no memory for.
REGIMES = (
    Regime(
        *(AttentionRung.TWIN, False, True, True, True),
        needs_compiler=True,
        min_arch=90,
        max_arch=90,
        takes_packed=False,
    ),
    Regime(AttentionRung.TENSOR_CORES, takes_float32=False, min_arch=80),
    Regime(AttentionRung.TILED),
    Regime(AttentionRung.FIRST, takes_packed=False),
)
