"""SwiGLU by others."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch import Tensor

from bindings.ops import _glu as glu
from compare.peers import Peer


def _unfused() -> Callable[..., Tensor]:
    def swiglu(gate: Tensor, up: Tensor | None) -> Tensor:
        gate, up = glu.pair(gate, up)
        x = gate.float()
        return (x / (1 + torch.exp(-x)) * up.float()).to(gate.dtype)

    return swiglu


def _liger() -> Callable[..., Tensor]:
    function = importlib.import_module("liger_kernel.ops.swiglu").LigerSiLUMulFunction

    def swiglu(gate: Tensor, up: Tensor | None) -> Tensor:
        out: Tensor = function.apply(*glu.pair(gate, up))
        return out

    return swiglu


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
        note="its backward overwrites both inputs",
    ),
)
