"""What every test of the suite runs on: each backend, on each device that is there."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from hypothesis import Phase, settings
from torch import Tensor

import bindings
from bindings import backends
from bindings.backends import interpreter
from bindings.op import DTYPES, Op, as_tuple
from bindings.registry import OPS
from compare import acceptance

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]

# pytest --hypothesis-profile=thorough tries other inputs in every run, and many more.
_own = settings(deadline=None, phases=set(Phase) - {Phase.explain})
settings.register_profile("quick", _own, derandomize=True, max_examples=20)
settings.register_profile("thorough", _own, max_examples=1000)
settings.load_profile("quick")

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

_INTERPRETER_REFUSES = interpreter.unsupported_reason(torch.float32)
needs_interpreter = pytest.mark.skipif(
    _INTERPRETER_REFUSES is not None, reason=_INTERPRETER_REFUSES or ""
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test for every op, backend, device and dtype that it asks for by name."""
    names = metafunc.fixturenames
    if "op" in names:
        metafunc.parametrize("op", OPS.values(), ids=lambda op: op.name)
    if "backend" in names and not _names_backends(metafunc):
        metafunc.parametrize("backend", backends.NAMES)
    if "device" in names:
        metafunc.parametrize("device", DEVICES)
    if "dtype" in names:
        metafunc.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])


def _names_backends(metafunc: pytest.Metafunc) -> bool:
    """Whether a test says itself which backends it runs for."""
    marks = metafunc.definition.iter_markers("parametrize")
    return any(mark.args[0] == "backend" for mark in marks)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what the interpreter would run where it refuses the environment."""
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if params.get("backend") == "triton" and params.get("device") == "cpu":
            item.add_marker(needs_interpreter)


def skip_if_refused(
    backend: str, device: str, dtype: torch.dtype = torch.float32
) -> None:
    """Skips what Triton's interpreter says it cannot do; that has a test of its own."""
    if backend != "triton" or device != "cpu":
        return
    if reason := interpreter.unsupported_reason(dtype):
        pytest.skip(reason)


@pytest.fixture
def generator() -> torch.Generator:
    """Random numbers that are the same in every run."""
    return torch.Generator().manual_seed(20261120)


@pytest.fixture(autouse=True)
def _unwritten_memory_is_nan() -> Iterator[None]:
    """Fills what torch.empty returns, so that an element nobody writes shows."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def random_inputs(
    op: Op,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
    generator: torch.Generator,
) -> tuple[Tensor, ...]:
    """The op's own random inputs on a device."""
    return tuple(x.to(dtype).to(device) for x in op.inputs(shape, generator))


def assert_accepted(
    op: Op,
    backend: str,
    inputs: tuple[Tensor, ...],
    params: Mapping[str, Any] | None = None,
) -> None:
    """Calls the op as a user does and judges its result by the acceptance rule."""
    call = inspect.signature(op.allocate).bind(*inputs, **(params or {}))
    call.apply_defaults()
    expected = acceptance.expect(op, call.args)
    before = [x.clone() for x in inputs]
    results = as_tuple(getattr(bindings, op.name)(*call.args, backend=backend))
    assert all(map(_same_bits, inputs, before)), "an input was written to"
    places = {x.untyped_storage().data_ptr() for x in inputs if x.numel()}
    for out in results:
        if isinstance(out, Tensor) and not out.is_meta:
            place = out.untyped_storage().data_ptr()
            assert place not in places, "the result lies in the memory of an input"
    verdict = acceptance.judge_all(results, expected)
    assert verdict.passed, verdict.problem


def cancels(grad: Tensor, y: Tensor, dim: int) -> bool:
    """Whether a row of softmax's gradient consists of rounding errors.

    Where grad is nearly the same in all of a row, so is grad - sum(grad * y) nearly 0,
    and what is left of it is PyTorch's luck as much as ours.
    """
    grad, y = grad.double(), y.double()
    row_sum = (grad * y).sum(dim, keepdim=True)
    size = (y * (grad - row_sum)).abs()
    terms = y * torch.maximum(grad.abs(), row_sum.abs())
    if y.dim() == 0 or y.numel() == 0:
        return False
    return bool((size.amax(dim) < 0.25 * terms.amax(dim)).any())


def _same_bits(x: Tensor, y: Tensor) -> bool:
    return torch.equal(acceptance.bits(x), acceptance.bits(y))
