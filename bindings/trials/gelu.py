"""What gelu and its backward are tried, timed and judged on."""

from __future__ import annotations

import torch
from torch import Tensor

from bindings.ops import gelu
from bindings.trial import ELEMENTWISE_EDGES, ELEMENTWISE_SWEEP, Trial, each_element


def _inputs(shape: tuple[int, ...], generator: torch.Generator) -> tuple[Tensor]:
    # Covers both tails, where the function is 0 or x, and the bend between them.
    return (3.0 * torch.randn(shape, generator=generator),)


def _inputs_backward(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    return (torch.randn(shape, generator=generator), *_inputs(shape, generator))


BACKWARD = Trial(
    op=gelu.BACKWARD,
    inputs=_inputs_backward,
    traffic=each_element(reads=2),
    small_shape=(1000003,),
    large_shape=(67108864,),
    benchmark_shapes=((67108864,),),
    sweep_shapes=ELEMENTWISE_SWEEP,
    edge_shapes=ELEMENTWISE_EDGES,
    variants=tuple({"approximate": choice} for choice in gelu.APPROXIMATIONS),
)

FORWARD = Trial(
    op=gelu.OP,
    inputs=_inputs,
    traffic=each_element(),
    small_shape=(1000003,),
    large_shape=(67108864,),
    benchmark_shapes=((67108864,),),
    sweep_shapes=ELEMENTWISE_SWEEP,
    edge_shapes=ELEMENTWISE_EDGES,
    variants=tuple({"approximate": choice} for choice in gelu.APPROXIMATIONS),
)
