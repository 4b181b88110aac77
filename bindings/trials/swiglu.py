"""What swiglu and its backward are tried, timed and judged on."""

from __future__ import annotations

import torch
from torch import Tensor

from bindings.ops import swiglu
from bindings.trials import _glu

_ROOT_OF_DERIVATIVE = -1.2784645


def _inputs(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    # Covers both tails of the gate, where it is shut or open, and the bend between.
    gate = 2.0 * torch.randn(shape, generator=generator)
    up = torch.randn(shape, generator=generator)
    return _glu.away_from(gate, _ROOT_OF_DERIVATIVE), up


FORWARD = _glu.forward(swiglu.OP, _inputs)
BACKWARD = _glu.backward(swiglu.BACKWARD, FORWARD)
