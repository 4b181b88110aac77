"""What layer_norm and its backward are tried, timed and judged on."""

from __future__ import annotations

import torch
from torch import Tensor

from bindings.ops import layer_norm
from bindings.trials import _norm


def _inputs(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        1 + torch.randn(shape, generator=generator),
        1 + torch.randn(shape[-1:], generator=generator) / 4,
        torch.randn(shape[-1:], generator=generator),
    )


def _inputs_backward(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    x, weight, _ = _inputs(shape, generator)
    return torch.randn(shape, generator=generator), x, weight


def _complete_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    wide = x.float()
    mean = wide.mean(-1)
    variance = (wide - mean.unsqueeze(-1)).square().mean(-1)
    return grad, x, mean, (variance + 1e-5).rsqrt(), weight


FORWARD = _norm.forward(layer_norm.OP, _inputs, n_vectors=2)
BACKWARD = _norm.backward(
    layer_norm.BACKWARD,
    FORWARD,
    _inputs_backward,
    _complete_backward,
    n_vectors=2,
    # In a row of one column nothing but rounding errors is left.
    edge_shapes=tuple(s for s in _norm.EDGE_SHAPES_BACKWARD if s[-1] != 1),
)
