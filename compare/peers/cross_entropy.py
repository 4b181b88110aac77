"""Cross entropy by others.

Liger-Kernel's is not among them. Its public function returns no logsumexp, without
which there is nothing to judge or to start a backward from; where logits want a
gradient it is written over them, and its backward at most scales that in place; and it
waits for the GPU several times in every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from compare.peers import FORMULA, Peer, compiled, using

Losses = tuple[Tensor, Tensor, Tensor]


def _torch(
    logits: Tensor, target: Tensor, ignore_index: int, smoothing: float, reduction: str
) -> Tensor:
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, -2),
        target.flatten(),
        ignore_index=ignore_index,
        label_smoothing=smoothing,
        reduction=reduction,
    )
    return loss.view(target.shape) if reduction == "none" else loss


def _unfused(
    logits: Tensor, target: Tensor, ignore_index: int, smoothing: float, reduction: str
) -> Losses:
    wide, is_counted = logits.float(), target != ignore_index
    maximum = wide.amax(-1, keepdim=True)
    sums = torch.exp(wide - maximum).sum(-1)
    logsumexp = maximum.squeeze(-1) + torch.log(sums)
    classes = torch.where(is_counted, target, 0).unsqueeze(-1)
    loss = logsumexp - (1 - smoothing) * wide.gather(-1, classes).squeeze(-1)
    if smoothing:
        loss = loss - smoothing * wide.mean(-1)
    return _reduced(loss, logsumexp, is_counted, reduction, logits.dtype)


def _quack(
    forward: Callable[..., tuple[Tensor, Tensor]],
    logits: Tensor,
    target: Tensor,
    ignore_index: int,
    smoothing: float,
    reduction: str,
) -> Losses:
    if smoothing:
        raise NotImplementedError("quack does not smooth labels")
    rows, classes = logits.flatten(0, -2), target.flatten()
    loss, logsumexp = forward(rows, classes, ignore_index=ignore_index, return_lse=True)
    return _reduced(
        loss.view(target.shape),
        logsumexp.view(target.shape),
        target != ignore_index,
        reduction,
        logits.dtype,
    )


def _reduced(
    loss: Tensor,
    logsumexp: Tensor,
    is_counted: Tensor,
    reduction: str,
    dtype: torch.dtype,
) -> Losses:
    loss = torch.where(is_counted, loss, 0.0)
    logsumexp = torch.where(is_counted, logsumexp, -math.inf)
    if reduction == "none":
        return loss.to(dtype), logsumexp, loss.new_empty(0)
    n_counted = is_counted.sum().float()
    loss = loss.sum() / n_counted if reduction == "mean" else loss.sum()
    return loss.to(dtype), logsumexp, n_counted


def _torch_backward(
    grad: Tensor,
    logits: Tensor,
    target: Tensor,
    logsumexp: Tensor,
    n_counted: Tensor | None,
    ignore_index: int,
    smoothing: float,
) -> Tensor:
    leaf = logits.detach().requires_grad_()
    losses = _torch(leaf, target, ignore_index, smoothing, "none")
    grad = grad if n_counted is None else (grad / n_counted).to(grad.dtype)
    return torch.autograd.grad(losses, leaf, grad.expand(target.shape))[0]


def _unfused_backward(
    grad: Tensor,
    logits: Tensor,
    target: Tensor,
    logsumexp: Tensor,
    n_counted: Tensor | None,
    ignore_index: int,
    smoothing: float,
) -> Tensor:
    scale = _scale(grad, target, n_counted, ignore_index).unsqueeze(-1)
    out = torch.exp(logits.float() - logsumexp.unsqueeze(-1))
    out = torch.where(scale == 0, 0.0, out - smoothing / logits.shape[-1])
    classes = torch.where(target == ignore_index, 0, target).unsqueeze(-1)
    share = torch.full_like(scale, smoothing - 1.0)
    return (out.scatter_add(-1, classes, share) * scale).to(logits.dtype)


def _quack_backward(
    backward: Callable[..., Tensor],
    grad: Tensor,
    logits: Tensor,
    target: Tensor,
    logsumexp: Tensor,
    n_counted: Tensor | None,
    ignore_index: int,
    smoothing: float,
) -> Tensor:
    if smoothing:
        raise NotImplementedError("quack does not smooth labels")
    return backward(
        logits.flatten(0, -2),
        target.flatten(),
        _scale(grad, target, n_counted, ignore_index).flatten(),
        logsumexp.flatten(),
        ignore_index=ignore_index,
    ).view(logits.shape)


def _scale(
    grad: Tensor, target: Tensor, n_counted: Tensor | None, ignore_index: int
) -> Tensor:
    """The gradient of each row's loss, in float32."""
    scale = torch.where(target == ignore_index, 0.0, grad.float())
    return scale if n_counted is None else scale / n_counted


_LOSS_ALONE = "returns the loss alone; its backward starts from what it computes beside"

PEERS = (
    Peer("torch", lambda: _torch, _LOSS_ALONE, n_outputs=1),
    Peer("torch.compile", lambda: compiled(_torch), _LOSS_ALONE, n_outputs=1),
    Peer("unfused", lambda: _unfused, FORMULA),
    Peer(
        "quack",
        using(_quack, "quack.cross_entropy:cross_entropy_fwd"),
        "losses of the rows and their logsumexp; PyTorch counts and adds up",
    ),
)
BACKWARD = (
    Peer(
        "torch",
        lambda: _torch_backward,
        "forward and backward, which starts from what the forward leaves",
    ),
    Peer("unfused", lambda: _unfused_backward, FORMULA),
    Peer(
        "quack",
        using(_quack_backward, "quack.cross_entropy:cross_entropy_bwd"),
        "PyTorch divides the gradient by the number of rows that count",
    ),
)
