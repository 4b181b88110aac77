"""SwiGLU by others."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bindings.ops import _glu as glu
from compare.peers import FORMULA, Peer, using


def _unfused(gate: Tensor, up: Tensor | None) -> Tensor:
    gate, up = glu.pair(gate, up)
    x = gate.float()
    return (x / (1 + torch.exp(-x)) * up.float()).to(gate.dtype)


def _liger(apply: Callable[..., Tensor], gate: Tensor, up: Tensor | None) -> Tensor:
    return apply(*glu.pair(gate, up))


PEERS = (
    Peer("unfused", lambda: _unfused, FORMULA),
    Peer(
        "liger",
        using(_liger, "liger_kernel.ops.swiglu:LigerSiLUMulFunction.apply"),
        "its backward overwrites both inputs",
    ),
)
