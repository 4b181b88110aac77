"""Cross entropy by others.

Liger-Kernel's is not among them. Its public function returns no logsumexp, without
which there is nothing to judge or to start a backward from; where logits want a
gradient it is written over them; and it waits for the GPU several times in every call.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from compare.peers import Peer, compiled

Losses = tuple[Tensor, Tensor, Tensor]


def _torch() -> Callable[..., Tensor]:
    def cross_entropy(
        logits: Tensor,
        target: Tensor,
        ignore_index: int,
        label_smoothing: float,
        reduction: str,
    ) -> Tensor:
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, -2),
            target.flatten(),
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction=reduction,
        )
        return loss.view(target.shape) if reduction == "none" else loss

    return cross_entropy


def _unfused() -> Callable[..., Any]:
    def cross_entropy(
        logits: Tensor,
        target: Tensor,
        ignore_index: int,
        label_smoothing: float,
        reduction: str,
    ) -> Losses:
        wide, is_counted = logits.float(), target != ignore_index
        maximum = wide.amax(-1, keepdim=True)
        sums = torch.exp(wide - maximum).sum(-1)
        logsumexp = maximum.squeeze(-1) + torch.log(sums)
        classes = torch.where(is_counted, target, 0).unsqueeze(-1)
        loss = logsumexp - (1 - label_smoothing) * wide.gather(-1, classes).squeeze(-1)
        if label_smoothing:
            loss = loss - label_smoothing * wide.mean(-1)
        return _reduced(loss, logsumexp, is_counted, reduction, logits.dtype)

    return cross_entropy


def _quack() -> Callable[..., Any]:
    function = importlib.import_module("quack.cross_entropy").cross_entropy_fwd

    def cross_entropy(
        logits: Tensor,
        target: Tensor,
        ignore_index: int,
        label_smoothing: float,
        reduction: str,
    ) -> Losses:
        if label_smoothing:
            raise NotImplementedError("quack does not smooth labels")
        loss, logsumexp = function(
            logits.flatten(0, -2),
            target.flatten(),
            ignore_index=ignore_index,
            return_lse=True,
        )
        return _reduced(
            loss.view(target.shape),
            logsumexp.view(target.shape),
            target != ignore_index,
            reduction,
            logits.dtype,
        )

    return cross_entropy


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


_LOSS_ALONE = "returns the loss alone; its backward starts from what it computes beside"

PEERS = (
    Peer("torch", _torch, n_outputs=1, note=_LOSS_ALONE),
    Peer("torch.compile", lambda: compiled(_torch()), n_outputs=1, note=_LOSS_ALONE),
    Peer(
        "unfused",
        _unfused,
        note="the formula in float32, each operation a kernel",
    ),
    Peer(
        "quack",
        _quack,
        package="quack-kernels",
        note="losses of the rows and their logsumexp; PyTorch counts and adds up",
    ),
)
