"""Layer normalisation by others."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch import Tensor

from compare.peers import Peer

Norm = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]]


def _unfused() -> Norm:
    def layer_norm(
        x: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        wide = x.float()
        mean = wide.mean(-1, keepdim=True)
        centered = wide - mean
        rstd = torch.rsqrt(centered.square().mean(-1, keepdim=True) + eps)
        out = centered * rstd * weight.float() + bias.float()
        return out.to(x.dtype), mean.squeeze(-1), rstd.squeeze(-1)

    return layer_norm


def _liger() -> Norm:
    forward = importlib.import_module("liger_kernel.ops.layer_norm").layer_norm_forward

    def layer_norm(
        x: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        out, _, mean, rstd, *_ = forward(x.contiguous(), weight, bias, eps)
        return out, mean.view(x.shape[:-1]), rstd.view(x.shape[:-1])

    return layer_norm


def _quack() -> Norm:
    forward = importlib.import_module("quack.rmsnorm").layernorm_fwd

    def layer_norm(
        x: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows = x.reshape(-1, x.shape[-1])
        out, rstd, mean = forward(
            rows, weight.float(), bias.float(), eps, return_rstd=True, return_mean=True
        )
        return out.view(x.shape), mean.view(x.shape[:-1]), rstd.view(x.shape[:-1])

    return layer_norm


PEERS = (
    Peer(
        "unfused",
        _unfused,
        note="mean, difference, variance and the rest in float32, each a kernel",
    ),
    Peer("liger", _liger, package="liger-kernel"),
    Peer(
        "quack",
        _quack,
        package="quack-kernels",
        note="takes weight and bias in float32 only, so others are converted",
    ),
)
