"""What swiglu and its backward are tried, timed and judged on."""

from __future__ import annotations

import torch
from torch import Tensor

from bindings.ops import swiglu
from bindings.trial import ELEMENTWISE_SWEEP, Trial, each_element
from bindings.trials import _glu

_ROOT_OF_DERIVATIVE = -1.2784645


def _inputs(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    # Covers both tails of the gate, where it is shut or open, and the bend between.
    gate = 2.0 * torch.randn(shape, generator=generator)
    up = torch.randn(shape, generator=generator)
    return _glu.away_from(gate, _ROOT_OF_DERIVATIVE), up


def _inputs_backward(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    return (torch.randn(shape, generator=generator), *_inputs(shape, generator))


BACKWARD = Trial(
    op=swiglu.BACKWARD,
    inputs=_inputs_backward,
    traffic=each_element(reads=3, writes=2),
    small_shape=(1024, 688),
    large_shape=(8192, 11008),
    benchmark_shapes=((8192, 11008),),
    sweep_shapes=ELEMENTWISE_SWEEP,
    edge_shapes=_glu.EDGES,
    largest_input=_glu.LARGEST_INPUT_BACKWARD,
)

FORWARD = Trial(
    op=swiglu.OP,
    inputs=_inputs,
    traffic=each_element(reads=2),
    small_shape=(1024, 688),
    large_shape=(8192, 11008),
    benchmark_shapes=((8192, 11008),),
    sweep_shapes=ELEMENTWISE_SWEEP,
    edge_shapes=_glu.EDGES,
)
