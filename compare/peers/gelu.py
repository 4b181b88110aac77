"""GELU by others."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from compare.peers import Peer


def _unfused() -> Callable[..., Tensor]:
    def gelu(x: Tensor, approximate: str) -> Tensor:
        wide = x.float()
        if approximate == "tanh":
            inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
            return (0.5 * wide * (1 + torch.tanh(inner))).to(x.dtype)
        return (0.5 * wide * (1 + torch.erf(wide * math.sqrt(0.5)))).to(x.dtype)

    return gelu


PEERS = (
    Peer(
        "unfused",
        _unfused,
        note="the formula in float32, each operation a kernel",
    ),
)
