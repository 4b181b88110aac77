"""Rotary position embedding by others.

Liger-Kernel's is not among them: it turns two tensors at once, and in place.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from compare.peers import Peer, using


def _flash_attn(
    turn: Callable[..., Tensor],
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool,
    offset: int | Tensor | None,
) -> Tensor:
    return turn(x, cos, sin, 0 if offset is None else offset, interleaved=interleaved)


PEERS = (
    Peer("flash-attn", using(_flash_attn, "flash_attn.ops.triton.rotary:apply_rotary")),
)
