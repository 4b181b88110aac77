"""Kernels that compute in a lower precision than they should."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import gelu

from bad_kernels.catalogue import bad_kernel
from compare.judge.cases import Case


@bad_kernel("the largest error is")
def by_way_of_bfloat16(out: Tensor, x: Tensor, approximate: str) -> None:
    """Converts its input first."""
    out.copy_(gelu(x.bfloat16()))


@bad_kernel("the largest error is")
def by_way_of_float16(out: Tensor, x: Tensor, approximate: str) -> None:
    """Converts its result before the last step."""
    out.copy_(gelu(x).half())


@bad_kernel("the largest error is", case=Case((5, 67), torch.float16))
def float16_by_way_of_bfloat16(out: Tensor, x: Tensor, approximate: str) -> None:
    """Takes one 16-bit format for the other."""
    out.copy_(gelu(x.float()).bfloat16())


@bad_kernel("the largest error is", op="softmax")
def inputs_as_tf32(out: Tensor, x: Tensor, dim: int) -> None:
    """Cuts off the 13 bits that the fast matrix units do not read."""
    bits = x.view(torch.int32) & ~0x1FFF
    out.copy_(torch.softmax(bits.view(torch.float32), -1))


@bad_kernel("the largest error is", op="softmax")
def exponentials_in_float16(out: Tensor, x: Tensor, dim: int) -> None:
    """Keeps the numerators in the precision of many models' weights."""
    exponentials = (x - x.amax(-1, keepdim=True)).exp().half().float()
    out.copy_(exponentials / exponentials.sum(-1, keepdim=True))


@bad_kernel("the largest error is", op="softmax", case=Case((3, 781), torch.float16))
def sum_in_float16(out: Tensor, x: Tensor, dim: int) -> None:
    """Accumulates in the dtype of the input, one column after the other."""
    exponentials = (x.float() - x.float().amax(-1, keepdim=True)).exp()
    total = torch.zeros(len(x), dtype=x.dtype, device=x.device)
    for column in exponentials.unbind(-1):
        total += column.to(x.dtype)
    out.copy_(exponentials / total[:, None])


@bad_kernel(r"\d+ of 335 elements are not bit for bit", op="add")
def sum_in_bfloat16(out: Tensor, x: Tensor, y: Tensor) -> None:
    """Adds in half the bits."""
    out.copy_(x.bfloat16() + y.bfloat16())


@bad_kernel(
    r"\d+ of 335 elements are not bit for bit",
    op="add",
    case=Case((5, 67), torch.float16),
)
def sum_cut_off(out: Tensor, x: Tensor, y: Tensor) -> None:
    """Rounds towards zero, half of the time by one bit more than it should."""
    total = x.float() + y.float()
    out.copy_((total.view(torch.int32) & ~0x1FFF).view(torch.float32))
