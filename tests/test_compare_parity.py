"""Cases, and the harness that judges an implementation in them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from together import in_one_test
from torch import Tensor

from bindings import backends
from bindings.errors import BuildError, UnsupportedError
from bindings.op import Op
from bindings.registry import OPS
from compare.judge.cases import LAYOUTS, Case, lay_out, make_arguments
from compare.judge.parity import Parity, Skipped, check_prepared, prepare

SHAPE = (5, 67)


@in_one_test("layout", "shape")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5), (2, 3, 5), (4, 1)])
def test_layouts_keep_shape_and_values(layout: str, shape: tuple[int, ...]) -> None:
    x = torch.rand(shape)
    y = lay_out(x, layout, "cpu")
    assert y.shape == x.shape
    if layout == "expanded" and shape:
        x = x[:1].expand(shape)
    assert torch.equal(x, y)


def test_layouts_are_what_they_are_called() -> None:
    x = torch.rand(4, 6)
    assert lay_out(x, "contiguous", "cpu").is_contiguous()
    assert lay_out(x, "transposed", "cpu").stride() == (1, 4)
    assert lay_out(x, "sliced", "cpu").stride() == (18, 1)
    assert lay_out(x, "sliced", "cpu").storage_offset() == 1
    assert lay_out(x, "expanded", "cpu").stride() == (0, 1)
    offset = lay_out(x, "offset", "cpu")
    assert offset.is_contiguous()
    assert offset.data_ptr() % 16 == 4


def test_memory_around_a_view_is_nan() -> None:
    x = torch.rand(4, 6)
    for layout, n_around in (("offset", 1), ("sliced", 8 * 9 - 4 * 6)):
        storage = lay_out(x, layout, "cpu").untyped_storage()
        memory = torch.tensor([]).set_(storage)
        assert int(memory.isnan().sum()) == n_around


def test_unknown_layout_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown layout 'diagonal'"):
        lay_out(torch.rand(2), "diagonal", "cpu")


def test_arguments_hold_parameters_and_defaults() -> None:
    gelu = OPS["gelu"]
    assert make_arguments(gelu, Case((3,)))[1:] == ("none",)
    case = Case((3,), params={"approximate": "tanh"})
    assert make_arguments(gelu, case)[1:] == ("tanh",)


@in_one_test("op")
def test_arguments_are_the_same_each_time(op: Op) -> None:
    first, again = (make_arguments(op, Case(SHAPE)) for _ in range(2))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], make_arguments(op, Case(SHAPE), seed=1)[0])


@in_one_test("op", "layout")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_torch_has_parity_with_itself(op: Op, layout: str, device: str) -> None:
    parity = check_prepared(prepare(op, Case(SHAPE, layout=layout), device), "torch")
    assert isinstance(parity, Parity)
    assert parity.passed, parity.problem
    assert parity.ran_on == ("gpu" if device == "cuda" else "cpu")


Run = Callable[..., None]


def _check(monkeypatch: pytest.MonkeyPatch, run: Run, **changes: Any) -> Any:
    """Puts a backend in place; those to be rejected are in bad_kernels."""
    monkeypatch.setattr(backends, "run", run)
    op = dataclasses.replace(OPS["gelu"], **changes)
    return check_prepared(prepare(op, Case(SHAPE)), "cuda")


def _gelu(out: Tensor, x: Tensor) -> None:
    out.copy_(torch.nn.functional.gelu(x))


def _never(*arguments: object) -> None:
    raise AssertionError("launched")


def test_right_kernel_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    parity = _check(monkeypatch, lambda name, op, out, x, *rest: _gelu(out, x))
    assert parity.passed
    assert parity.ran_on == "emulator"
    assert 0 < parity.error.max <= parity.allowed.max


def test_output_in_an_input_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    parity = _check(monkeypatch, _never, allocate=lambda x, approximate="none": x)
    assert parity.problem == "the output lies in the memory of an input"


def test_output_of_a_wrong_dtype_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(x: Tensor, approximate: str = "none") -> Tensor:
        return x.half()

    parity = _check(monkeypatch, _never, allocate=allocate)
    assert parity.problem == "the dtype is torch.float16, not torch.float32"


def test_exception_of_a_kernel_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: object) -> None:
        raise RuntimeError("gelu_kernel: a barrier that not all threads reach")

    parity = _check(monkeypatch, run)
    assert not parity.passed
    assert parity.problem == "gelu_kernel: a barrier that not all threads reach"
    assert math.isnan(parity.error.max)


def test_what_a_backend_refuses_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: object) -> None:
        raise UnsupportedError("not on Tuesdays")

    assert _check(monkeypatch, run) == Skipped("not on Tuesdays")


def test_failed_build_is_no_parity_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: object) -> None:
        raise BuildError("g++ says no")

    with pytest.raises(BuildError, match="g\\+\\+ says no"):
        _check(monkeypatch, run)


def test_empty_tensor_launches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "run", _never)
    parity = check_prepared(prepare(OPS["gelu"], Case((0, 3))), "cuda")
    assert isinstance(parity, Parity)
    assert parity.passed
