"""Root mean square normalisation by others."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch import Tensor

from compare.peers import Peer

Norm = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]


def _unfused() -> Norm:
    def rms_norm(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        wide = x.float()
        rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        return (wide * rstd * weight.float()).to(x.dtype), rstd.squeeze(-1)

    return rms_norm


def _liger() -> Norm:
    forward = importlib.import_module("liger_kernel.ops.rms_norm").rms_norm_forward

    def rms_norm(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        out, _, rstd, *_ = forward(x.contiguous(), weight, eps, 0.0, "gemma", None)
        return out, rstd.view(x.shape[:-1])

    return rms_norm


def _quack() -> Norm:
    forward = importlib.import_module("quack.rmsnorm").rmsnorm_fwd

    def rms_norm(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        rows = x.reshape(-1, x.shape[-1])
        out, _, rstd = forward(rows, weight, eps=eps, store_rstd=True)
        return out.view(x.shape), rstd.view(x.shape[:-1])

    return rms_norm


PEERS = (
    Peer(
        "unfused",
        _unfused,
        note="square, mean, rsqrt and two products in float32, each a kernel",
    ),
    Peer(
        "liger",
        _liger,
        package="liger-kernel",
        note="in the mode that computes all of it in float32",
    ),
    Peer("quack", _quack, package="quack-kernels"),
)
