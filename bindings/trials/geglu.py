"""What geglu and its backward are tried, timed and judged on."""

from __future__ import annotations

import torch
from torch import Tensor

from bindings.ops import geglu
from bindings.trial import ELEMENTWISE_SWEEP, Trial, each_element
from bindings.trials import _glu

_ROOT_OF_DERIVATIVE = -0.752  # of both forms of GELU, to three digits


def _inputs(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    # Covers both tails of the gate, where it is shut or open, and the bend between.
    value = torch.randn(shape, generator=generator)
    gate = 2.0 * torch.randn(shape, generator=generator)
    return value, _glu.away_from(gate, _ROOT_OF_DERIVATIVE)


def _inputs_backward(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    return (torch.randn(shape, generator=generator), *_inputs(shape, generator))


BACKWARD = Trial(
    op=geglu.BACKWARD,
    inputs=_inputs_backward,
    traffic=each_element(reads=3, writes=2),
    small_shape=(1024, 688),
    large_shape=(8192, 11008),
    benchmark_shapes=((8192, 11008),),
    sweep_shapes=ELEMENTWISE_SWEEP,
    edge_shapes=_glu.EDGES,
    largest_input=_glu.LARGEST_INPUT_BACKWARD,
    variants=tuple({"approximate": choice} for choice in geglu.APPROXIMATIONS),
)

FORWARD = Trial(
    op=geglu.OP,
    inputs=_inputs,
    traffic=each_element(reads=2),
    small_shape=(1024, 688),
    large_shape=(8192, 11008),
    benchmark_shapes=((8192, 11008),),
    sweep_shapes=ELEMENTWISE_SWEEP,
    edge_shapes=_glu.EDGES,
    variants=tuple({"approximate": choice} for choice in geglu.APPROXIMATIONS),
)
