"""What softmax has to get right beside what every op has to."""

from __future__ import annotations

import pytest
import torch
from conftest import assert_accepted, random_inputs, skip_if_refused

import triton_kernels.softmax
from bindings.registry import OPS


@pytest.mark.parametrize("n_cols", [32776, 33333])
def test_more_long_rows_than_programs(
    backend: str,
    device: str,
    dtype: torch.dtype,
    n_cols: int,
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_if_refused(backend, device, dtype)
    # Where there are two it does not take many rows.
    monkeypatch.setattr(triton_kernels.softmax, "NUM_SMS", 2)
    backward = OPS["softmax_backward"]
    inputs = random_inputs(backward, (5, n_cols), dtype, device, generator)
    assert_accepted(backward, backend, inputs)
