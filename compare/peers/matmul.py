"""Products of matrices by others."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from bindings.op import Outputs
from bindings.ops.matmul import float32_precision, product
from compare.peers import Peer, compiled


def _compiled(
    compiled_product: Callable[..., Outputs],
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    activation: str | None,
    precision: str,
) -> Outputs:
    # The switch is read when torch compiles and when cuBLAS is called.
    with float32_precision(precision):
        return compiled_product(a, b, bias, activation)


def _epilogue(
    a: Tensor, b: Tensor, bias: Tensor | None, activation: str | None, precision: str
) -> Tensor:
    if activation not in ("relu", "gelu_tanh") or bias is None or a.dim() > 2:
        raise ValueError(
            "cuBLASLt has a bias with relu or gelu_tanh, of matrices alone"
        )
    # Private to torch: there is no public function for it. A test pins it.
    with float32_precision(precision):
        return torch._addmm_activation(bias, a, b, use_gelu=activation == "gelu_tanh")


PEERS = (
    Peer("torch.compile", lambda: functools.partial(_compiled, compiled(product))),
    Peer(
        "cublaslt",
        lambda: _epilogue,
        "a private function of PyTorch; it has relu and gelu_tanh behind a bias",
    ),
)
