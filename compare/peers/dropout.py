"""Dropout by others."""

from __future__ import annotations

import torch
from torch import Tensor

from bindings.ops.dropout import OP
from compare.peers import Peer, compiled


def _torch(x: Tensor, p: float, seed: int) -> Tensor:
    return torch.nn.functional.dropout(x, p)


_OF_ANOTHER_GENERATOR = (
    "draws its mask from PyTorch's own generator, so nobody can judge its results"
)

PEERS = (
    Peer(
        "torch",
        lambda: _torch,
        f"{_OF_ANOTHER_GENERATOR}; stores the mask, a byte for each element",
        is_random=True,
    ),
    Peer(
        "torch.compile",
        lambda: compiled(_torch),
        _OF_ANOTHER_GENERATOR,
        is_random=True,
    ),
    Peer(
        "unfused",
        lambda: OP.reference,
        "the same mapping in int64, each operation a kernel",
    ),
)
