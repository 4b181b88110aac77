"""Kernels that compute something else, if only for some inputs."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import gelu

from bad_kernels.catalogue import bad_kernel
from compare.judge.cases import Case


def _times_100(x: Tensor) -> Tensor:
    return 100 * x


@bad_kernel(r"\d+ of 335 elements are NaN", op="softmax", change=_times_100)
def no_maximum_subtracted(out: Tensor, x: Tensor, dim: int) -> None:
    """Overflows from 89 on."""
    exponentials = x.exp()
    out.copy_(exponentials / exponentials.sum(-1, keepdim=True))


@bad_kernel(r"\d+ of 335 elements are NaN", op="softmax", change=_times_100)
def maximum_of_the_first_tile(out: Tensor, x: Tensor, dim: int) -> None:
    """Walks over the row once and never rescales by a later, larger maximum."""
    exponentials = (x - x[:, :32].amax(-1, keepdim=True)).exp()
    out.copy_(exponentials / exponentials.sum(-1, keepdim=True))


def _below_minus_100(x: Tensor) -> Tensor:
    return x - 200


@bad_kernel(r"335 of 335 elements are NaN", op="softmax", change=_below_minus_100)
def maximum_from_zero_on(out: Tensor, x: Tensor, dim: int) -> None:
    """Begins the search for the maximum with 0, so that all exponentials vanish."""
    exponentials = (x - x.amax(-1, keepdim=True).clamp(min=0)).exp()
    out.copy_(exponentials / exponentials.sum(-1, keepdim=True))


@bad_kernel("the largest error is", op="softmax", case=Case((3, 33)))
def tail_padded_with_zeros(out: Tensor, x: Tensor, dim: int) -> None:
    """Fills the last vector of a row with 0, each of which adds exp(0) to the sum."""
    padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % 4))
    out.copy_(torch.softmax(padded, -1)[:, : x.shape[-1]])


@bad_kernel("the largest error is", op="softmax", case=Case((3, 4095)))
def long_tail_padded_with_zeros(out: Tensor, x: Tensor, dim: int) -> None:
    """The same where it makes a 7000th of the sum."""
    tail_padded_with_zeros(out, x, dim)


@bad_kernel("the largest error is", op="softmax", case=Case((3, 33)))
def tail_left_out_of_the_sum(out: Tensor, x: Tensor, dim: int) -> None:
    """Sums whole vectors only."""
    exponentials = (x - x.amax(-1, keepdim=True)).exp()
    n_summed = x.shape[-1] // 4 * 4
    out.copy_(exponentials / exponentials[:, :n_summed].sum(-1, keepdim=True))


@bad_kernel("the largest error is")
def tanh_instead_of_erf(out: Tensor, x: Tensor, approximate: str) -> None:
    """Computes the approximation that was not asked for."""
    out.copy_(gelu(x, approximate="tanh"))


@bad_kernel("the largest error is", case=Case((5, 67), params={"approximate": "tanh"}))
def erf_instead_of_tanh(out: Tensor, x: Tensor, approximate: str) -> None:
    """Ignores a parameter."""
    out.copy_(gelu(x))


@bad_kernel("the largest error is")
def right_for_positive_inputs(out: Tensor, x: Tensor, approximate: str) -> None:
    """Was tested with torch.rand."""
    out.copy_(gelu(x).where(x > 0, 0.0))


def _around_minus_5(x: Tensor) -> Tensor:
    return x / 100 - 5.2


@bad_kernel("the largest error is", change=_around_minus_5)
def tail_cut_off(out: Tensor, x: Tensor, approximate: str) -> None:
    """Rounds small results to 0, which shows where all are small."""
    out.copy_(gelu(x).where(x > -5, 0.0))


def _with_nan(x: Tensor) -> Tensor:
    x = x.clone()
    x[1, 2] = math.nan
    return x


@bad_kernel("1 of 335 elements should be NaN and are not", change=_with_nan)
def nan_is_0(out: Tensor, x: Tensor, approximate: str) -> None:
    """Loses NaN in a maximum with 0, as fmaxf does."""
    out.copy_(gelu(x.nan_to_num(nan=0.0)))


@bad_kernel(
    "67 of 335 elements should be NaN and are not", op="softmax", change=_with_nan
)
def nan_is_the_smallest(out: Tensor, x: Tensor, dim: int) -> None:
    """Loses NaN in the search for the maximum, and gives it no share."""
    out.copy_(torch.softmax(x.nan_to_num(nan=-math.inf), -1))


@bad_kernel("the largest error is", op="softmax", case=Case((4, 4), params={"dim": 0}))
def other_dimension(out: Tensor, x: Tensor, dim: int) -> None:
    """Takes rows, whatever dim says."""
    out.copy_(torch.softmax(x, -1))


def _minus_zero(x: Tensor) -> Tensor:
    return torch.full_like(x, -0.0)


@bad_kernel("335 of 335 elements are not bit for bit", op="add", change=_minus_zero)
def sum_from_zero_on(out: Tensor, x: Tensor, y: Tensor) -> None:
    """Adds to a 0, which makes 0 of -0."""
    out.copy_(0.0 + x + y)
