"""Rotary position embedding by others.

Liger-Kernel's is not among them: it turns two tensors at once, and in place.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from torch import Tensor

from compare.peers import Peer


def _flash_attn() -> Callable[..., Tensor]:
    turn = importlib.import_module("flash_attn.ops.triton.rotary").apply_rotary

    def rotary(
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        interleaved: bool,
        offset: int | Tensor | None,
    ) -> Tensor:
        begin = 0 if offset is None else offset
        out: Tensor = turn(x, cos, sin, begin, interleaved=interleaved)
        return out

    return rotary


PEERS = (Peer("flash-attn", _flash_attn, package="flash-attn"),)
