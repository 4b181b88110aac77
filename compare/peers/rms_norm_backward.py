"""The backward of root mean square normalisation by others."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from torch import Tensor

from compare.peers import Peer

Backward = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def _unfused() -> Backward:
    def rms_norm_backward(
        grad: Tensor, x: Tensor, rstd: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        rstd, wide_grad = rstd.unsqueeze(-1), grad.float()
        x_hat, g = x.float() * rstd, wide_grad * weight.float()
        grad_x = rstd * (g - x_hat * (g * x_hat).mean(-1, keepdim=True))
        grad_weight = (wide_grad * x_hat).sum_to_size(weight.shape)
        return grad_x.to(x.dtype), grad_weight.to(x.dtype)

    return rms_norm_backward


def _liger() -> Backward:
    backward = importlib.import_module("liger_kernel.ops.rms_norm").rms_norm_backward
    utils = importlib.import_module("liger_kernel.ops.utils")

    def rms_norm_backward(
        grad: Tensor, x: Tensor, rstd: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        n_cols = x.shape[-1]
        block_size, num_warps = utils.calculate_settings(n_cols)
        grad_x, grad_weight = backward(
            grad.contiguous(),
            x.reshape(-1, n_cols),
            weight,
            rstd.flatten(),
            0.0,
            1,  # the mode that computes all of it in float32, by its number
            block_size,
            num_warps,
            False,
            None,
        )
        return grad_x, grad_weight

    return rms_norm_backward


def _quack() -> Backward:
    backward = importlib.import_module("quack.rmsnorm").rmsnorm_bwd

    def rms_norm_backward(
        grad: Tensor, x: Tensor, rstd: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        rows = (each.reshape(-1, x.shape[-1]) for each in (x, grad))
        x_rows, grad_rows = rows
        grad_x, grad_weight, *_ = backward(x_rows, weight, grad_rows, rstd.flatten())
        return grad_x.view(x.shape), grad_weight

    return rms_norm_backward


PEERS = (
    Peer(
        "unfused",
        _unfused,
        note="the formula in float32, each operation a kernel",
    ),
    Peer(
        "liger",
        _liger,
        package="liger-kernel",
        note="in the mode that computes all of it in float32",
    ),
    Peer("quack", _quack, package="quack-kernels"),
)
