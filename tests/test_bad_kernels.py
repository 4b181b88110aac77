"""The suite tests itself: it rejects each of bad_kernels, for the right reason."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import bad_kernels
import pytest
import torch
from bad_kernels import cheats
from bad_kernels.catalogue import BAD_KERNELS, BAD_RESULTS, SHAPE, BadKernel, BadResult
from common import assert_accepted, random_inputs, skip_if_refused
from together import in_one_test
from torch import Tensor

from bindings import library
from bindings.op import Op
from bindings.registry import OPS
from compare.judge.parity import Parity, check_prepared

for _file in pkgutil.iter_modules(bad_kernels.__path__):
    importlib.import_module(f"bad_kernels.{_file.name}")


@pytest.fixture
def _traces_are_removed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    functional = torch.nn.functional
    monkeypatch.setattr(functional, "gelu", functional.gelu)
    cheats.harness_is_done.clear()
    yield
    cheats.harness_is_done.set()


@pytest.mark.usefixtures("_traces_are_removed")
@pytest.mark.parametrize("bad", BAD_KERNELS, ids=lambda bad: bad.name)
def test_bad_kernel_is_rejected(
    bad: BadKernel, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device not in bad.devices:
        pytest.skip(f"not for {device}")
    if bad.name.startswith("triton."):
        skip_if_refused("triton", device)
    prepared = bad.prepare(device)

    def run(op: Op, out: Tensor, *arguments: Any) -> None:
        bad.run(out, *arguments)

    # This is what bindings.backends imports when it is asked for "cuda".
    name = "bindings.backends.cuda"
    module = ModuleType(name)
    module.__dict__["run"] = run
    monkeypatch.setitem(sys.modules, name, module)
    parity = check_prepared(prepared, "cuda")
    assert isinstance(parity, Parity)
    assert re.match(bad.verdict, parity.problem), parity.problem


CASES = {(bad.op, str(bad.case), bad.change): bad for bad in BAD_KERNELS}


@in_one_test("bad")
@pytest.mark.parametrize("implementation", ["cuda", "triton", "torch"])
@pytest.mark.parametrize("bad", CASES.values(), ids=lambda bad: bad.name)
def test_right_kernel_is_accepted_there(
    bad: BadKernel, implementation: str, device: str
) -> None:
    skip_if_refused(implementation, device)
    parity = check_prepared(bad.prepare(device), implementation)
    assert isinstance(parity, Parity)
    assert parity.problem == ""


@pytest.mark.parametrize("bad", BAD_RESULTS, ids=lambda bad: bad.name)
def test_bad_result_is_rejected(
    bad: BadResult,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    generator: torch.Generator,
) -> None:
    op = OPS[bad.op]
    inputs = random_inputs(op, SHAPE, bad.dtype, device, generator)
    inputs = tuple(map(bad.change, inputs))

    def call(op: Op, backend: str, *arguments: Any) -> Any:
        return bad.call(*arguments)

    monkeypatch.setattr(library, "call_any", call)
    with pytest.raises(AssertionError, match=f"^{bad.verdict}"):
        assert_accepted(op, "cuda", inputs)


def test_all_are_there() -> None:
    names = {bad.name for bad in BAD_KERNELS} | {bad.name for bad in BAD_RESULTS}
    assert len(names) == len(BAD_KERNELS) + len(BAD_RESULTS) >= 15
    for folder in ("cuda", "triton"):
        files = Path(bad_kernels.__file__).with_name(folder).glob("[!_]*.*")
        assert {f"{folder}.{path.stem}" for path in files if path.is_file()} <= names
