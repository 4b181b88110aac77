"""Softmax by others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from compare.peers import Peer, using


def _unfused(x: Tensor, dim: int) -> Tensor:
    wide = x.float()
    exponentials = torch.exp(wide - wide.amax(dim, keepdim=True))
    return (exponentials / exponentials.sum(dim, keepdim=True)).to(x.dtype)


def _unfused_backward(grad: Tensor, y: Tensor, dim: int) -> Tensor:
    wide = y.float()
    products = grad.float() * wide
    return (products - wide * products.sum(dim, keepdim=True)).to(y.dtype)


def _of_rows(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Applies a function of rows along a dimension, the last of the arguments."""
    *tensors, dim = arguments
    rows = [each.movedim(dim, -1) for each in tensors]
    shape = rows[0].shape
    out = function(*(each.reshape(-1, shape[-1]) for each in rows))
    return out.view(shape).movedim(-1, dim)


def _liger_backward(
    backward: Callable[..., Tensor],
    calculate_settings: Callable[[int], tuple[int, int]],
    *arguments: Any,
) -> Tensor:
    def of_rows(grad: Tensor, y: Tensor) -> Tensor:
        return backward(grad, y, *calculate_settings(y.shape[-1]), False)

    return _of_rows(of_rows, *arguments)


_COPIES_X = "takes the last dimension only, so x is copied for any other"
_COPIES_BOTH = "takes the last dimension only, so both are copied for any other"

PEERS = (
    Peer(
        "unfused",
        lambda: _unfused,
        "max, subtraction, exp, sum and division in float32, each a kernel",
    ),
    Peer(
        "liger",
        using(_of_rows, "liger_kernel.ops.softmax:LigerSoftmaxFunction.apply"),
        _COPIES_X,
    ),
    Peer("quack", using(_of_rows, "quack.softmax:softmax"), _COPIES_X),
)
BACKWARD = (
    Peer(
        "unfused",
        lambda: _unfused_backward,
        "product, sum, product and difference in float32, each a kernel",
    ),
    Peer(
        "liger",
        using(
            _liger_backward,
            "liger_kernel.ops.softmax:_softmax_backward",
            "liger_kernel.ops.utils:calculate_settings",
        ),
        _COPIES_BOTH,
    ),
    Peer("quack", using(_of_rows, "quack.softmax:softmax_bwd"), _COPIES_BOTH),
)
