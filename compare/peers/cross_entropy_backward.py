"""The backward of cross entropy by others.

Liger-Kernel has none to call: its forward writes the gradient over the logits, and its
backward at most scales that in place.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch import Tensor

from compare.peers import Peer


def _torch() -> Callable[..., Tensor]:
    def cross_entropy_backward(
        grad: Tensor,
        logits: Tensor,
        target: Tensor,
        logsumexp: Tensor,
        n_counted: Tensor | None,
        ignore_index: int,
        label_smoothing: float,
    ) -> Tensor:
        leaf = logits.detach().requires_grad_()
        losses = torch.nn.functional.cross_entropy(
            leaf.flatten(0, -2),
            target.flatten(),
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction="none",
        )
        grad = grad if n_counted is None else (grad / n_counted).to(grad.dtype)
        return torch.autograd.grad(losses, leaf, grad.expand(target.shape).flatten())[0]

    return cross_entropy_backward


def _unfused() -> Callable[..., Tensor]:
    def cross_entropy_backward(
        grad: Tensor,
        logits: Tensor,
        target: Tensor,
        logsumexp: Tensor,
        n_counted: Tensor | None,
        ignore_index: int,
        label_smoothing: float,
    ) -> Tensor:
        scale = _scale(grad, target, n_counted, ignore_index).unsqueeze(-1)
        out = torch.exp(logits.float() - logsumexp.unsqueeze(-1))
        out = torch.where(scale == 0, 0.0, out - label_smoothing / logits.shape[-1])
        classes = torch.where(target == ignore_index, 0, target).unsqueeze(-1)
        share = torch.full_like(scale, label_smoothing - 1.0)
        return (out.scatter_add(-1, classes, share) * scale).to(logits.dtype)

    return cross_entropy_backward


def _quack() -> Callable[..., Tensor]:
    function = importlib.import_module("quack.cross_entropy").cross_entropy_bwd

    def cross_entropy_backward(
        grad: Tensor,
        logits: Tensor,
        target: Tensor,
        logsumexp: Tensor,
        n_counted: Tensor | None,
        ignore_index: int,
        label_smoothing: float,
    ) -> Tensor:
        if label_smoothing:
            raise NotImplementedError("quack does not smooth labels")
        out: Tensor = function(
            logits.flatten(0, -2),
            target.flatten(),
            _scale(grad, target, n_counted, ignore_index).flatten(),
            logsumexp.flatten(),
            ignore_index=ignore_index,
        )
        return out.view(logits.shape)

    return cross_entropy_backward


def _scale(
    grad: Tensor, target: Tensor, n_counted: Tensor | None, ignore_index: int
) -> Tensor:
    """The gradient of each row's loss, in float32."""
    scale = torch.where(target == ignore_index, 0.0, grad.float())
    return scale if n_counted is None else scale / n_counted


PEERS = (
    Peer(
        "torch",
        _torch,
        note="forward and backward, which starts from what the forward leaves",
    ),
    Peer(
        "unfused",
        _unfused,
        note="the formula in float32, each operation a kernel",
    ),
    Peer(
        "quack",
        _quack,
        package="quack-kernels",
        note="PyTorch divides the gradient by the number of rows that count",
    ),
)
