"""Layer normalisation by others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from compare.peers import FORMULA, Peer, using

Three = tuple[Tensor, Tensor, Tensor]


def _unfused(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Three:
    wide = x.float()
    mean = wide.mean(-1, keepdim=True)
    centered = wide - mean
    rstd = torch.rsqrt(centered.square().mean(-1, keepdim=True) + eps)
    out = centered * rstd * weight.float() + bias.float()
    return out.to(x.dtype), mean.squeeze(-1), rstd.squeeze(-1)


def _liger(
    forward: Callable[..., Any], x: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> Three:
    out, _, mean, rstd, *_ = forward(x.contiguous(), weight, bias, eps)
    return out, mean.view(x.shape[:-1]), rstd.view(x.shape[:-1])


def _quack(
    forward: Callable[..., Any], x: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> Three:
    rows = x.reshape(-1, x.shape[-1])
    out, rstd, mean = forward(
        rows, weight.float(), bias.float(), eps, return_rstd=True, return_mean=True
    )
    return out.view(x.shape), mean.view(x.shape[:-1]), rstd.view(x.shape[:-1])


def _unfused_backward(
    grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor
) -> Three:
    rstd, wide_grad = rstd.unsqueeze(-1), grad.float()
    x_hat = (x.float() - mean.unsqueeze(-1)) * rstd
    g = wide_grad * weight.float()
    product = x_hat * (g * x_hat).mean(-1, keepdim=True)
    grad_x = rstd * (g - g.mean(-1, keepdim=True) - product)
    grad_weight = (wide_grad * x_hat).sum_to_size(weight.shape)
    grad_bias = wide_grad.sum_to_size(weight.shape)
    return grad_x.to(x.dtype), grad_weight.to(x.dtype), grad_bias.to(x.dtype)


def _liger_backward(backward: Callable[..., Three], *tensors: Tensor) -> Three:
    grad, x, mean, rstd, weight = tensors
    return backward(
        grad.contiguous(),
        x.reshape(-1, x.shape[-1]),
        weight,
        weight,  # in place of the bias, of which only the dtype is looked at
        mean.flatten(),
        rstd.flatten(),
    )


def _quack_backward(backward: Callable[..., Three], *tensors: Tensor) -> Three:
    grad, x, mean, rstd, weight = tensors
    x_rows, grad_rows = (each.reshape(-1, x.shape[-1]) for each in (x, grad))
    grad_x, grad_weight, grad_bias = backward(
        x_rows, weight, grad_rows, rstd.flatten(), mean.flatten()
    )
    return grad_x.view(x.shape), grad_weight, grad_bias


PEERS = (
    Peer(
        "unfused",
        lambda: _unfused,
        "mean, difference, variance and the rest in float32, each a kernel",
    ),
    Peer("liger", using(_liger, "liger_kernel.ops.layer_norm:layer_norm_forward")),
    Peer(
        "quack",
        using(_quack, "quack.rmsnorm:layernorm_fwd"),
        "takes weight and bias in float32 only, so others are converted",
    ),
)
BACKWARD = (
    Peer("unfused", lambda: _unfused_backward, FORMULA),
    Peer(
        "liger",
        using(_liger_backward, "liger_kernel.ops.layer_norm:layer_norm_backward"),
    ),
    Peer("quack", using(_quack_backward, "quack.rmsnorm:layernorm_bwd")),
)
