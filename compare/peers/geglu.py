"""GEGLU by others."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from bindings.ops import _glu as glu
from compare.peers import FORMULA, Peer, using
from compare.peers.gelu import gelu


def _unfused(value: Tensor, gate: Tensor | None, approximate: str) -> Tensor:
    value, gate = glu.pair(value, gate)
    return (value.float() * gelu(gate.float(), approximate)).to(value.dtype)


def _liger(
    apply: Callable[..., Tensor], value: Tensor, gate: Tensor | None, approximate: str
) -> Tensor:
    if approximate != "tanh":
        raise NotImplementedError("Liger-Kernel has the tanh approximation only")
    value, gate = glu.pair(value, gate)
    return apply(gate, value)


PEERS = (
    Peer("unfused", lambda: _unfused, FORMULA),
    Peer(
        "liger",
        using(_liger, "liger_kernel.ops.geglu:LigerGELUMulFunction.apply"),
        "the tanh approximation only; its backward overwrites both inputs",
    ),
)
