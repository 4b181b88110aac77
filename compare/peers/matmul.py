"""Products of matrices by others."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bindings.ops.matmul import float32_precision, product
from compare.peers import Peer, compiled


def _compiled() -> Callable[..., Tensor]:
    function = compiled(product)

    def matmul(
        a: Tensor,
        b: Tensor,
        bias: Tensor | None,
        activation: str | None,
        precision: str,
    ) -> Tensor:
        # The switch is read when torch compiles and when cuBLAS is called.
        with float32_precision(precision):
            out = function(a, b, bias, activation)
        assert isinstance(out, Tensor)
        return out

    return matmul


def _epilogue() -> Callable[..., Tensor]:
    def matmul(
        a: Tensor,
        b: Tensor,
        bias: Tensor | None,
        activation: str | None,
        precision: str,
    ) -> Tensor:
        if activation not in ("relu", "gelu_tanh") or bias is None or a.dim() > 2:
            raise ValueError(
                "cuBLASLt has a bias with relu or gelu_tanh, of matrices alone"
            )
        # Private to torch: there is no public function for it. A test pins it.
        with float32_precision(precision):
            out: Tensor = torch._addmm_activation(
                bias, a, b, use_gelu=activation == "gelu_tanh"
            )
        return out

    return matmul


PEERS = (
    Peer("torch.compile", _compiled),
    Peer(
        "cublaslt",
        _epilogue,
        note="a private function of PyTorch; it has relu and gelu_tanh behind a bias",
    ),
)
