"""What geglu and its backward are tried, timed and judged on."""

from __future__ import annotations

import torch
from torch import Tensor

from bindings.ops import geglu
from bindings.trials import _glu

_ROOT_OF_DERIVATIVE = -0.752  # of both forms of GELU, to three digits


def _inputs(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    # Covers both tails of the gate, where it is shut or open, and the bend between.
    value = torch.randn(shape, generator=generator)
    gate = 2.0 * torch.randn(shape, generator=generator)
    return value, _glu.away_from(gate, _ROOT_OF_DERIVATIVE)


FORWARD = _glu.forward(
    geglu.OP,
    _inputs,
    variants=tuple({"approximate": choice} for choice in geglu.APPROXIMATIONS),
)
BACKWARD = _glu.backward(geglu.BACKWARD, FORWARD)
