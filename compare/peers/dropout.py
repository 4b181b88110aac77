"""Dropout by others."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bindings.ops.dropout import OP
from compare.peers import Peer, compiled


def _torch() -> Callable[..., Tensor]:
    def dropout(x: Tensor, p: float, seed: int) -> Tensor:
        return torch.nn.functional.dropout(x, p)

    return dropout


def _unfused() -> Callable[..., Tensor]:
    reference: Callable[..., Tensor] = OP.reference  # type: ignore[assignment]
    return reference


_OF_ANOTHER_GENERATOR = (
    "draws its mask from PyTorch's own generator, so nobody can judge its results"
)

PEERS = (
    Peer(
        "torch",
        _torch,
        note=f"{_OF_ANOTHER_GENERATOR}; stores the mask, a byte for each element",
        is_random=True,
    ),
    Peer(
        "torch.compile",
        lambda: compiled(_torch()),
        note=_OF_ANOTHER_GENERATOR,
        is_random=True,
    ),
    Peer(
        "unfused",
        _unfused,
        note="the same mapping in int64, each operation a kernel",
    ),
)
