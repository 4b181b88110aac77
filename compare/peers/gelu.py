"""GELU by others."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from compare.peers import FORMULA, Peer


def gelu(x: Tensor, approximate: str) -> Tensor:
    """The formula, each operation a kernel, in float32."""
    wide = x.float()
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
        return (0.5 * wide * (1 + torch.tanh(inner))).to(x.dtype)
    return (0.5 * wide * (1 + torch.erf(wide * math.sqrt(0.5)))).to(x.dtype)


def _backward(grad: Tensor, x: Tensor, approximate: str) -> Tensor:
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


PEERS = (Peer("unfused", lambda: gelu, FORMULA),)
BACKWARD = (Peer("unfused", lambda: _backward, FORMULA),)
