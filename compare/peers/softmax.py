"""Softmax by others."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch import Tensor

from compare.peers import Peer


def _unfused() -> Callable[..., Tensor]:
    def softmax(x: Tensor, dim: int) -> Tensor:
        wide = x.float()
        exponentials = torch.exp(wide - wide.amax(dim, keepdim=True))
        return (exponentials / exponentials.sum(dim, keepdim=True)).to(x.dtype)

    return softmax


def _liger() -> Callable[..., Tensor]:
    function = importlib.import_module("liger_kernel.ops.softmax").LigerSoftmaxFunction
    return _of_the_last_dim(function.apply)


def _quack() -> Callable[..., Tensor]:
    return _of_the_last_dim(importlib.import_module("quack.softmax").softmax)


def _of_the_last_dim(function: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def softmax(x: Tensor, dim: int) -> Tensor:
        rows = x.movedim(dim, -1)
        out = function(rows.reshape(-1, x.shape[dim]))
        return out.view(rows.shape).movedim(-1, dim)

    return softmax


_OF_THE_LAST_DIM = "takes the last dimension only, so x is copied for any other"

PEERS = (
    Peer(
        "unfused",
        _unfused,
        note="max, subtraction, exp, sum and division in float32, each a kernel",
    ),
    Peer("liger", _liger, package="liger-kernel", note=_OF_THE_LAST_DIM),
    Peer("quack", _quack, package="quack-kernels", note=_OF_THE_LAST_DIM),
)
