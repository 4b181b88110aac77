"""Root mean square normalisation by others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from compare.peers import FORMULA, Peer, using

Two = tuple[Tensor, Tensor]


def _unfused(x: Tensor, weight: Tensor, eps: float) -> Two:
    wide = x.float()
    rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * rstd * weight.float()).to(x.dtype), rstd.squeeze(-1)


def _liger(forward: Callable[..., Any], x: Tensor, weight: Tensor, eps: float) -> Two:
    out, _, rstd, *_ = forward(x.contiguous(), weight, eps, 0.0, "gemma", None)
    return out, rstd.view(x.shape[:-1])


def _quack(forward: Callable[..., Any], x: Tensor, weight: Tensor, eps: float) -> Two:
    rows = x.reshape(-1, x.shape[-1])
    out, _, rstd = forward(rows, weight, eps=eps, store_rstd=True)
    return out.view(x.shape), rstd.view(x.shape[:-1])


def _unfused_backward(grad: Tensor, x: Tensor, rstd: Tensor, weight: Tensor) -> Two:
    rstd, wide_grad = rstd.unsqueeze(-1), grad.float()
    x_hat, g = x.float() * rstd, wide_grad * weight.float()
    grad_x = rstd * (g - x_hat * (g * x_hat).mean(-1, keepdim=True))
    grad_weight = (wide_grad * x_hat).sum_to_size(weight.shape)
    return grad_x.to(x.dtype), grad_weight.to(x.dtype)


def _liger_backward(
    backward: Callable[..., Two],
    calculate_settings: Callable[[int], tuple[int, int]],
    *tensors: Tensor,
) -> Two:
    grad, x, rstd, weight = tensors
    x_rows = x.reshape(-1, x.shape[-1])
    settings = calculate_settings(x.shape[-1])
    in_float32 = 1  # the number of the mode that computes all of it so
    leading = (grad.contiguous(), x_rows, weight, rstd.flatten(), 0.0, in_float32)
    return backward(*leading, *settings, False, None)


def _quack_backward(
    backward: Callable[..., Any], grad: Tensor, x: Tensor, rstd: Tensor, weight: Tensor
) -> Two:
    x_rows, grad_rows = (each.reshape(-1, x.shape[-1]) for each in (x, grad))
    grad_x, grad_weight, *_ = backward(x_rows, weight, grad_rows, rstd.flatten())
    return grad_x.view(x.shape), grad_weight


_IN_FLOAT32 = "in the mode that computes all of it in float32"

PEERS = (
    Peer(
        "unfused",
        lambda: _unfused,
        "square, mean, rsqrt and two products in float32, each a kernel",
    ),
    Peer(
        "liger",
        using(_liger, "liger_kernel.ops.rms_norm:rms_norm_forward"),
        _IN_FLOAT32,
    ),
    Peer("quack", using(_quack, "quack.rmsnorm:rmsnorm_fwd")),
)
BACKWARD = (
    Peer("unfused", lambda: _unfused_backward, FORMULA),
    Peer(
        "liger",
        using(
            _liger_backward,
            "liger_kernel.ops.rms_norm:rms_norm_backward",
            "liger_kernel.ops.utils:calculate_settings",
        ),
        _IN_FLOAT32,
    ),
    Peer("quack", using(_quack_backward, "quack.rmsnorm:rmsnorm_bwd")),
)
