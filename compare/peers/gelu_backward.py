"""The backward of GELU by others."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from compare.peers import Peer


def _unfused() -> Callable[..., Tensor]:
    def gelu_backward(grad: Tensor, x: Tensor, approximate: str) -> Tensor:
        wide = x.float()
        if approximate == "tanh":
            scale = math.sqrt(2 / math.pi)
            tanh = torch.tanh(scale * (wide + 0.044715 * wide**3))
            inner = scale * (1 + 3 * 0.044715 * wide**2)
            slope = 0.5 * (1 + tanh) + 0.5 * wide * (1 - tanh**2) * inner
        else:
            density = torch.exp(-0.5 * wide**2) / math.sqrt(2 * math.pi)
            slope = 0.5 * (1 + torch.erf(wide * math.sqrt(0.5))) + wide * density
        return (grad.float() * slope).to(x.dtype)

    return gelu_backward


PEERS = (
    Peer(
        "unfused",
        _unfused,
        note="the formula in float32, each operation a kernel",
    ),
)
