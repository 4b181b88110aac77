"""GEGLU by others."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable

import torch
from torch import Tensor

from bindings.ops import _glu as glu
from compare.peers import Peer


def _unfused() -> Callable[..., Tensor]:
    def geglu(value: Tensor, gate: Tensor | None, approximate: str) -> Tensor:
        value, gate = glu.pair(value, gate)
        x = gate.float()
        if approximate == "tanh":
            phi = 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        else:
            phi = 0.5 * (1 + torch.erf(x * math.sqrt(0.5)))
        return (value.float() * (x * phi)).to(value.dtype)

    return geglu


def _liger() -> Callable[..., Tensor]:
    function = importlib.import_module("liger_kernel.ops.geglu").LigerGELUMulFunction

    def geglu(value: Tensor, gate: Tensor | None, approximate: str) -> Tensor:
        if approximate != "tanh":
            raise NotImplementedError("Liger-Kernel has the tanh approximation only")
        value, gate = glu.pair(value, gate)
        out: Tensor = function.apply(gate, value)
        return out

    return geglu


PEERS = (
    Peer(
        "unfused",
        _unfused,
        note="the formula in float32, each operation a kernel",
    ),
    Peer(
        "liger",
        _liger,
        package="liger-kernel",
        note="the tanh approximation only; its backward overwrites both inputs",
    ),
)
