"""softmax: the tests that are its alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from common import assert_accepted, leave_out, random_inputs
from torch import Tensor

import bindings
from bindings.registry import OPS
from triton_kernels.common import share
from triton_kernels.common.device import Device

# Read out of the L1, and beyond it: no multiple of a vector, so that rows begin at all
# places in one.
UNEVEN = (1025, 1031, 32769, 33333)


def is_other_length(params: Mapping[str, Any]) -> bool:
    """Whether a dtype has the other one of two lengths that take the same path.

    Rows of both begin at all places in a vector. On a GPU all are tried.
    """
    if params["device"] != "cpu" or params["n_cols"] not in UNEVEN:
        return False
    is_second = UNEVEN.index(params["n_cols"]) % 2 == 1
    return is_second != bool(params["dtype"] == torch.float16)


def _views(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The rows with gaps between them, and with an unaligned first row, too."""
    n_rows, n_cols = rows.shape
    wide = rows.new_full((n_rows, n_cols + 3), float("nan"))
    wide[:, :n_cols] = rows
    flat = rows.new_full((n_rows * n_cols + 1,), float("nan"))
    flat[1:] = rows.flatten()
    return wide[:, :n_cols], flat[1:].view(n_rows, n_cols)


@pytest.mark.parametrize("n_cols", UNEVEN)
@leave_out(is_other_length)
def test_rows_that_begin_anywhere(
    backend: str,
    device: str,
    dtype: torch.dtype,
    n_cols: int,
    generator: torch.Generator,
) -> None:
    x = torch.randn(9, n_cols, generator=generator).to(dtype).to(device)
    for view in (x, *_views(x)):
        assert_accepted(OPS["softmax"], backend, (view,))


@pytest.mark.parametrize("n_cols", [2049, *UNEVEN])
@leave_out(is_other_length)
def test_gradients_of_rows_that_begin_anywhere(
    backend: str,
    device: str,
    dtype: torch.dtype,
    n_cols: int,
    generator: torch.Generator,
) -> None:
    backward = OPS["softmax_backward"]
    grad, y = random_inputs(backward, (9, n_cols), dtype, device, generator)
    for view in (grad, *_views(grad)):
        assert_accepted(backward, backend, (view, y))


@pytest.mark.parametrize("n_cols", UNEVEN)
def test_the_first_and_the_last_columns_count(
    backend: str, device: str, n_cols: int
) -> None:
    ends = (*range(8), *range(n_cols - 8, n_cols))
    x = torch.zeros(len(ends), n_cols, device=device)
    for row, col in enumerate(ends):
        x[row, col] = 200.0  # exp(-200) is 0 in float32
    out = bindings.softmax(x, backend=backend)
    assert torch.equal(out, (x > 0).float())
    for row, col in enumerate(ends):
        x[row, col] = float("nan")
    assert bindings.softmax(x, backend=backend).isnan().all()


@pytest.mark.parametrize("n_sms", [2, 16])
# Each of the 16-bit types, which take the same paths, has one of them.
@leave_out(
    lambda each: (
        each["dtype"] != torch.float32
        and (each["dtype"] == torch.bfloat16) != (each["n_sms"] == 2)
    )
)
def test_more_long_rows_than_programs(
    backend: str,
    device: str,
    dtype: torch.dtype,
    n_sms: int,
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Programs of 16 multiprocessors share a row or three at a time. Those of 2 are too
    # few for one, and do not wait for each other.
    one = Device(arch=90, n_sms=n_sms)
    monkeypatch.setattr(share, "current_device", lambda: one)
    backward = OPS["softmax_backward"]
    inputs = random_inputs(backward, (5, 65544), dtype, device, generator)
    assert_accepted(backward, backend, inputs)
