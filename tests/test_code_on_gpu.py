"""The code that is shown of a kernel without a GPU is the code that a GPU runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from common import needs_gpu
from triton.runtime.jit import JITFunction

from bindings.backends import native, prebuilt, triton
from bindings.op import Argument, Op, as_tuple
from bindings.trials import TRIALS
from compare.code import binary
from compare.code.architectures import Architecture, parse_architecture
from compare.code.kernel_code import inspect_cuda, inspect_triton
from compare.judge.cases import Case, launcher_arguments, make_arguments

pytestmark = needs_gpu


@pytest.fixture
def arguments(op: Op, dtype: torch.dtype) -> tuple[Argument, ...]:
    inputs = make_arguments(op, Case(TRIALS[op.name].small_shape, dtype), "cuda")
    return op.arguments(*as_tuple(op.allocate(*inputs)), *inputs)


@pytest.fixture
def meta_arguments(op: Op, dtype: torch.dtype) -> tuple[Argument, ...]:
    return launcher_arguments(op, Case(TRIALS[op.name].small_shape, dtype))


@pytest.fixture
def architecture() -> Architecture:
    return parse_architecture("sm_{}{}".format(*torch.cuda.get_device_capability()))


def kernels_of(launch: Any, folder: Path) -> list[dict[str, Any]]:
    """The name, grid and block of each kernel that the profiler saw."""
    launch()
    torch.cuda.synchronize()
    with torch.profiler.profile(acc_events=True) as profile:
        launch()
        torch.cuda.synchronize()
    file = folder / "trace.json"
    profile.export_chrome_trace(str(file))
    return [
        {"name": each["name"], **each["args"]}
        for each in json.loads(file.read_text())["traceEvents"]
        if each.get("cat") == "kernel"
    ]


def test_cuda_code_is_that_of_the_extension(
    op: Op,
    arguments: tuple[Argument, ...],
    meta_arguments: tuple[Argument, ...],
    architecture: Architecture,
    tmp_path: Path,
) -> None:
    module = prebuilt.load("_cuda")
    code = inspect_cuda(op, meta_arguments, architecture)
    stream = torch.cuda.current_stream().cuda_stream
    ran, *others = kernels_of(
        lambda: native.launch(module, op, arguments, stream), tmp_path
    )
    assert 1 + len(others) == len(code.kernels)
    assert (ran["grid"], ran["block"]) == (
        list(code.launch.grid),
        list(code.launch.block),
    )
    assert ran["registers per thread"] == code.registers
    assert ran["shared memory"] == code.shared_bytes
    assert code.title.partition("<")[0] in ran["name"]
    assert module.__file__ is not None
    built = binary.read_kernel(Path(module.__file__), code.kernel, code.arch)
    assert binary.count_differing(code.sass, built) == 0


def test_triton_code_is_that_of_the_launch(
    op: Op,
    arguments: tuple[Argument, ...],
    meta_arguments: tuple[Argument, ...],
    architecture: Architecture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = inspect_triton(op, meta_arguments, architecture)
    compiled = []
    run = JITFunction.run

    def run_and_keep(*args: Any, **kwargs: Any) -> Any:
        compiled.append(run(*args, **kwargs))
        return compiled[-1]

    monkeypatch.setattr(JITFunction, "run", run_and_keep)
    ran, *others = kernels_of(lambda: triton.launcher(op)(*arguments), tmp_path)
    assert 1 + len(others) == len(code.kernels)
    assert (ran["grid"], ran["block"]) == (
        list(code.launch.grid),
        list(code.launch.block),
    )
    assert ran["registers per thread"] == code.registers
    assert ran["shared memory"] == code.shared_bytes
    assert ran["name"] == code.kernel
    # The PTX's version is that of the assembler, and where torch.compile was used
    # before, it has set another for what Triton compiles from then on.
    first = compiled[-len(code.kernels)]
    assert _code(first.asm["ptx"]) == _code(code.ptx.text)


def _code(ptx: str) -> str:
    return ptx.partition(".target")[2]
