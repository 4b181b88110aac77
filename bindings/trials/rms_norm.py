"""What rms_norm and its backward are tried, timed and judged on."""

from __future__ import annotations

import torch
from torch import Tensor

from bindings.ops import rms_norm
from bindings.trials import _norm


def _inputs(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    return (
        torch.randn(shape, generator=generator),
        1 + torch.randn(shape[-1:], generator=generator) / 4,
    )


def _inputs_backward(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    grad = torch.randn(shape, generator=generator)
    x, weight = _inputs(shape, generator)
    # In a row of one column g - x_hat * mean(g * x_hat) is g * eps / (x^2 + eps): x has
    # to be small for eps to count, or nothing but rounding errors is left.
    return grad, x / 1000 if shape[-1:] == (1,) else x, weight


def _complete_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    rstd = (x.float().square().mean(-1) + 1e-6).rsqrt()
    return grad, x, rstd, weight


FORWARD = _norm.forward(rms_norm.OP, _inputs, n_vectors=1)
BACKWARD = _norm.backward(
    rms_norm.BACKWARD, FORWARD, _inputs_backward, _complete_backward, n_vectors=1
)
