"""Kernels that do not write what they should, or write what they should not."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import gelu

from bad_kernels.catalogue import bad_kernel


@bad_kernel("335 of 335 elements were not written")
def nothing(out: Tensor, x: Tensor, approximate: str) -> None:
    """Launches nothing."""


@bad_kernel("5 of 335 elements were not written")
def all_but_the_last_column(out: Tensor, x: Tensor, approximate: str) -> None:
    """Leaves the tail of each row as it is."""
    out[:, :-1] = gelu(x[:, :-1])


def _with_a_row_of_nan(x: Tensor) -> Tensor:
    return x.index_fill(0, torch.tensor([3], device=x.device), math.nan)


@bad_kernel(
    "67 of 335 elements were not written", op="softmax", change=_with_a_row_of_nan
)
def all_but_rows_of_nan(out: Tensor, x: Tensor, dim: int) -> None:
    """Skips a row whose result is NaN, as which fresh memory may pass."""
    rows = ~x.isnan().any(-1)
    out[rows] = torch.softmax(x[rows], -1)


def _place(x: Tensor, index: int) -> Tensor:
    """The element that many places from the first one, whatever lies there."""
    everything = torch.tensor([], dtype=x.dtype, device=x.device)
    return everything.set_(x.untyped_storage())[x.storage_offset() + index]


@bad_kernel("memory around the output was written to")
def one_element_past_the_end(out: Tensor, x: Tensor, approximate: str) -> None:
    """Writes `n + 1` elements."""
    out.copy_(gelu(x))
    _place(out, out.numel()).zero_()


@bad_kernel("memory around the output was written to")
def one_element_before_the_start(out: Tensor, x: Tensor, approximate: str) -> None:
    """Writes from element -1 on."""
    out.copy_(gelu(x))
    _place(out, -1).zero_()


@bad_kernel("an input, or memory around it, was written to")
def element_of_the_input(out: Tensor, x: Tensor, approximate: str) -> None:
    """Uses its input as scratch memory."""
    out.copy_(gelu(x))
    x[2, 3] = 0.0


@bad_kernel("an input, or memory around it, was written to")
def past_the_end_of_the_input(out: Tensor, x: Tensor, approximate: str) -> None:
    """Pads its input in place."""
    out.copy_(gelu(x))
    _place(x, x.numel()).fill_(-math.inf)


@bad_kernel("an input, or memory around it, was written to")
def zeros_everywhere(out: Tensor, x: Tensor, approximate: str) -> None:
    """Zeroes its input, so that zeros would be right if the reference came later."""
    x.zero_()
    out.zero_()


@bad_kernel("the largest error is")
def copy_of_the_input(out: Tensor, x: Tensor, approximate: str) -> None:
    """Computes nothing."""
    out.copy_(x)


@bad_kernel("the largest error is")
def constant(out: Tensor, x: Tensor, approximate: str) -> None:
    """Knows roughly what comes out."""
    out.fill_(0.5)


@bad_kernel(r"1 of 335 elements are NaN and should not be")
def reads_past_the_end(out: Tensor, x: Tensor, approximate: str) -> None:
    """Reads one element too far, which lies in another tensor's memory."""
    flat = torch.as_strided(x, (x.numel(),), (1,), x.storage_offset() + 1)
    out.copy_(gelu(flat).view(x.shape))
