"""The backward of softmax by others."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from torch import Tensor

from compare.peers import Peer


def _unfused() -> Callable[..., Tensor]:
    def softmax_backward(grad: Tensor, y: Tensor, dim: int) -> Tensor:
        wide = y.float()
        products = grad.float() * wide
        return (products - wide * products.sum(dim, keepdim=True)).to(y.dtype)

    return softmax_backward


def _liger() -> Callable[..., Tensor]:
    backward = importlib.import_module("liger_kernel.ops.softmax")._softmax_backward
    settings = importlib.import_module("liger_kernel.ops.utils").calculate_settings

    def of_rows(grad: Tensor, y: Tensor) -> Tensor:
        block_size, num_warps = settings(y.shape[-1])
        result: Tensor = backward(grad, y, block_size, num_warps, False)
        return result

    return _of_the_last_dim(of_rows)


def _quack() -> Callable[..., Tensor]:
    return _of_the_last_dim(importlib.import_module("quack.softmax").softmax_bwd)


def _of_the_last_dim(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def softmax_backward(grad: Tensor, y: Tensor, dim: int) -> Tensor:
        rows = grad.movedim(dim, -1), y.movedim(dim, -1)
        out = function(*(each.reshape(-1, y.shape[dim]) for each in rows))
        return out.view(rows[1].shape).movedim(-1, dim)

    return softmax_backward


_OF_THE_LAST_DIM = "takes the last dimension only, so both are copied for any other"

PEERS = (
    Peer(
        "unfused",
        _unfused,
        note="product, sum, product and difference in float32, each a kernel",
    ),
    Peer("liger", _liger, package="liger-kernel", note=_OF_THE_LAST_DIM),
    Peer("quack", _quack, package="quack-kernels", note=_OF_THE_LAST_DIM),
)
