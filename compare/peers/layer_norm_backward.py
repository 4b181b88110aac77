"""The backward of layer normalisation by others."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from torch import Tensor

from compare.peers import Peer

Gradients = tuple[Tensor, Tensor, Tensor]
Backward = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Gradients]


def _unfused() -> Backward:
    def layer_norm_backward(
        grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor
    ) -> Gradients:
        rstd, wide_grad = rstd.unsqueeze(-1), grad.float()
        x_hat = (x.float() - mean.unsqueeze(-1)) * rstd
        g = wide_grad * weight.float()
        product = x_hat * (g * x_hat).mean(-1, keepdim=True)
        grad_x = rstd * (g - g.mean(-1, keepdim=True) - product)
        grad_weight = (wide_grad * x_hat).sum_to_size(weight.shape)
        grad_bias = wide_grad.sum_to_size(weight.shape)
        return grad_x.to(x.dtype), grad_weight.to(x.dtype), grad_bias.to(x.dtype)

    return layer_norm_backward


def _liger() -> Backward:
    module = importlib.import_module("liger_kernel.ops.layer_norm")

    def layer_norm_backward(
        grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor
    ) -> Gradients:
        gradients: Gradients = module.layer_norm_backward(
            grad.contiguous(),
            x.reshape(-1, x.shape[-1]),
            weight,
            weight,  # in place of the bias, of which only the dtype is looked at
            mean.flatten(),
            rstd.flatten(),
        )
        return gradients

    return layer_norm_backward


def _quack() -> Backward:
    backward = importlib.import_module("quack.rmsnorm").layernorm_bwd

    def layer_norm_backward(
        grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor
    ) -> Gradients:
        grad_x, grad_weight, grad_bias = backward(
            x.reshape(-1, x.shape[-1]),
            weight,
            grad.reshape(-1, x.shape[-1]),
            rstd.flatten(),
            mean.flatten(),
        )
        return grad_x.view(x.shape), grad_weight, grad_bias

    return layer_norm_backward


PEERS = (
    Peer(
        "unfused",
        _unfused,
        note="the formula in float32, each operation a kernel",
    ),
    Peer("liger", _liger, package="liger-kernel"),
    Peer("quack", _quack, package="quack-kernels"),
)
