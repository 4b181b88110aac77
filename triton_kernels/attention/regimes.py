"""Which rung computes a call of attention."""

import sys
from enum import IntEnum
from typing import NamedTuple

import torch

from triton_kernels.common.device import Device


class AttentionRung(IntEnum):
    """What computes a call: what REGIMES chooses, or a rung of the ladder."""

    CHOSEN = 0
    FIRST = 1
    TILED = 2
    TENSOR_CORES = 3


class Call(NamedTuple):
    """What rung and tile are chosen by."""

    dtype: torch.dtype
    head_dim: int
    is_plain: bool  # scores are scaled by a positive number, and no more
    has_vectors: bool  # all is read and written by 8 bytes or more at a time


class Regime(NamedTuple):
    """The calls that a rung can serve."""

    rung: AttentionRung
    takes_float32: bool = True
    min_arch: int = 0  # the first architecture, such as 90
    max_arch: int = sys.maxsize

    def serves(self, device: Device, call: Call) -> bool:
        """Whether a call is one of them."""
        return (
            self.takes_float32 or call.dtype != torch.float32
        ) and self.min_arch <= device.arch <= self.max_arch


# A call takes the first rung that can serve it; never the first of the ladder, whose
# scores it has no memory for.
REGIMES = (
    Regime(AttentionRung.TENSOR_CORES, takes_float32=False, min_arch=80),
    Regime(AttentionRung.TILED),
    Regime(AttentionRung.FIRST),
)
