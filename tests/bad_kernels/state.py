"""Kernels whose result depends on earlier calls."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import gelu

from bad_kernels.catalogue import bad_kernel
from compare.judge.cases import Case

_by_address: dict[int, Tensor] = {}
_by_shape: dict[tuple[int, ...], Tensor] = {}
_products: dict[int, Tensor] = {}
_sums: dict[torch.device, Tensor] = {}


@bad_kernel("the largest error is")
def kept_by_address(out: Tensor, x: Tensor, approximate: str) -> None:
    """Takes a buffer that it has seen for the same input, whatever is in it now."""
    # A caller reuses its buffers: the test calls with others before.
    out.copy_(_by_address.setdefault(x.data_ptr(), gelu(x)))


@bad_kernel("the largest error is")
def kept_by_shape(out: Tensor, x: Tensor, approximate: str) -> None:
    """Takes an input of a shape that it has seen for the same input."""
    out.copy_(_by_shape.setdefault(tuple(x.shape), gelu(x)))


@bad_kernel("the largest error is", op="matmul", case=Case((5, 3, 67)))
def product_kept_by_address(out: Tensor, a: Tensor, b: Tensor, *_: object) -> None:
    """Likewise of a product: with both operands negated it would be what it was."""
    out.copy_(_products.setdefault(a.data_ptr(), a @ b))


@bad_kernel("the largest error is", op="softmax")
def sum_that_is_not_reset(out: Tensor, x: Tensor, dim: int) -> None:
    """Adds into a workspace that only the first call finds empty."""
    sums = _sums.setdefault(x.device, torch.zeros(len(x), 1, device=x.device))
    exponentials = (x - x.amax(-1, keepdim=True)).exp()
    sums += exponentials.sum(-1, keepdim=True)
    out.copy_(exponentials / sums)
