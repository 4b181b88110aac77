"""The Triton side of a pair: runs it in the interpreter, and reads its code."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from bindings.backends.interpreter import unsupported_reason
from bindings.disk_cache import folder_of
from compare.assembly.listing import parse_ptx
from compare.assembly.stores import stored_parameters
from compare.code.architectures import Architecture
from compare.code.kernel_code import KernelCode, Side, assemble
from compare.errors import CodegenUnavailable, UnavailableError
from compare.judge.parity import Skipped
from compare.pairs import sandbox
from compare.pairs.calls import Call, Outcome
from compare.pairs.sandbox import DEFAULT_LIMITS, ForeignCodeError, Limits
from compare.pairs.tensor_trees import map_tensors, named_tensors
from compare.ptx_simulator import Launch, TensorArgument, TensorMap
from compare.report.tables import Grid

# The kinds of failures that are broken limits.
_LIMITS = ("time", "memory", "output", "processes")


@dataclasses.dataclass(frozen=True)
class TritonCode:
    """What Triton makes of the kernels that a function launches.

    Attributes:
        code: That of one kernel, or why there is none.
        configurations: Those among which the kernel's autotuner chooses, if it has one.
    """

    code: KernelCode | Skipped
    configurations: Grid | None = None


def run(
    caller: Mapping[str, Any],
    calls: Sequence[Call],
    files: Sequence[Path],
    *,
    written: Collection[int] = (),
    limits: Limits = DEFAULT_LIMITS,
) -> list[Outcome] | Skipped:
    """Has Triton's interpreter answer calls of a function of the user's.

    Args:
        caller: The function, as `callers.make` takes it.
        calls: With tensors on the CPU; their order is "forward" or "reverse".
        files: The user's files, for messages.
        written: The numbers of the inputs that may be written to, besides those that
            the function returns, or that it changes and returns nothing.
        limits: On each worker: after a call that ends it there is another.

    Returns:
        An outcome for each call, or why the interpreter cannot run this function.

    Raises:
        ForeignCodeError: The file cannot be imported.
        UsageError: It has no such function.
    """
    for call in calls:
        for _, tensor in named_tensors([""] * len(call.inputs), call.inputs):
            if reason := unsupported_reason(tensor.dtype):
                return Skipped(reason)
    request = {
        "caller": caller,
        "written": [*written],
        "files": [str(each.resolve()) for each in files],
    }
    outcomes: list[Outcome] = []
    try:
        while len(outcomes) < len(calls):
            remaining = calls[len(outcomes) :]
            outcomes += _run_until_fault(
                request, remaining, files, limits, is_first=not outcomes
            )
    except UnavailableError as error:
        return Skipped(str(error))
    return outcomes


def _run_until_fault(
    request: Mapping[str, Any],
    calls: Sequence[Call],
    files: Sequence[Path],
    limits: Limits,
    *,
    is_first: bool,
) -> list[Outcome]:
    """The outcomes of at least one call: of all, or up to that which ended the worker.

    Behind a call that broke a limit, or whose result was too large, and behind the
    second in a row that ended its worker, no other is tried. If time has run out,
    though, the call at work is charged only if it was the first, because the others
    have had a part of it.

    Args:
        request: What all workers are told.
        calls: To be made.
        files: The user's files, for messages.
        limits: On the worker.
        is_first: Whether there was no worker before, which a call has ended.
    """
    asked = [vars(each) | {"inputs": [*each.inputs]} for each in calls]
    try:
        parts = sandbox.run(
            "triton_run",
            {**request, "calls": asked},
            files=files,
            limits=limits,
            variables={"TRITON_INTERPRET": "1"},
        )
    except ForeignCodeError as error:
        if not error.parts:  # the file has not been imported
            raise
        outcomes = _outcomes(error.parts)
        if len(outcomes) == len(calls) or (error.kind == "time" and outcomes):
            return outcomes
        outcomes.append(Outcome(problem=str(error)))
        n_left = len(calls) - len(outcomes)
        if error.kind in _LIMITS:
            reason = f"not tried, because the call before it {error}"
            outcomes += [Outcome(problem=reason)] * n_left
        elif len(outcomes) == 1 and not is_first:
            outcomes += outcomes * n_left
        return outcomes
    outcomes = _outcomes(parts)
    return outcomes + outcomes[-1:] * (len(calls) - len(outcomes))


def _outcomes(parts: Sequence[Any]) -> list[Outcome]:
    """What the worker has yielded, behind the word that it has imported the file."""
    return [
        Outcome(**each | {"outputs": tuple(each.get("outputs", ()))})
        for each in parts[1:]
    ]


def code(
    caller: Mapping[str, Any],
    inputs: Sequence[Any],
    architecture: Architecture,
    *,
    number: int = 0,
    side: Side = "triton",
    name: str = "",
    files: Sequence[Path],
    limits: Limits = DEFAULT_LIMITS,
) -> TritonCode:
    """Compiles what a function of the user's launches for inputs like these.

    Args:
        caller: The function, as `callers.make` takes it.
        inputs: Its arguments; of the tensors only shapes, strides and dtypes matter.
        architecture: What it is compiled for.
        number: Of the launch whose code is wanted, counted from 0.
        side: The place that it has in the comparison.
        name: What sentences call it; by default "Triton".
        files: The user's files, for messages.
        limits: On the worker.

    Raises:
        ForeignCodeError: The file cannot be imported.
        UsageError: It has no such function.
        CodegenUnavailable: A tool is missing that reads the machine code, or there can
            be no cache folder.
        CompilationFailed: The machine code cannot be read.
    """
    request = {
        "caller": caller,
        "inputs": [map_tensors(each, _described) for each in inputs],
        "architecture": architecture.name,
        "number": number,
        "files": [str(each.resolve()) for each in files],
    }
    # Foreign code may write there, so that Triton itself must not use it elsewhere.
    cache = folder_of("pairs-triton")
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CodegenUnavailable(
            f"the cache folder {cache} cannot be made: {error.strerror}",
            "XDG_CACHE_HOME can name another place",
        ) from error
    try:
        found = sandbox.run(
            "triton_code",
            request,
            files=files,
            limits=limits,
            variables={"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(cache)},
            writable=[cache],
        )
    except UnavailableError as error:
        return TritonCode(Skipped(str(error)))
    return _triton_code(found, architecture, number, side, name)


def _triton_code(
    found: Mapping[str, Any],
    architecture: Architecture,
    number: int,
    side: Side,
    name: str,
) -> TritonCode:
    """What the worker has answered."""
    if "skipped" in found:
        return TritonCode(Skipped(found["skipped"]))
    titles, launch = tuple(found["titles"]), found["launch"]
    build = _Build(**{each: launch[each] for each in _Build.__annotations__})
    observed = _launch(launch["parameters"])
    return TritonCode(
        assemble(
            side,
            architecture,
            titles,
            number,
            build,
            lambda: str(launch["log"]),
            observed,
            _elements(build, observed, launch["elements"]),
            name=name,
            language="triton",
        ),
        _configurations(launch),
    )


@dataclasses.dataclass(frozen=True)
class _Build:
    """What Triton made of a kernel."""

    ptx: str
    cubin: bytes
    kernel: str
    compiler: str


def _described(tensor: Tensor) -> dict[str, Any]:
    """What the worker makes a meta tensor of."""
    return {
        "tensor": str(tensor.dtype).removeprefix("torch."),
        "shape": [*tensor.shape],
        "strides": [*tensor.stride()],
        "offset": int(tensor.storage_offset()),
    }


def _elements(build: _Build, launch: Launch, elements: Mapping[str, int]) -> int:
    """How many elements the output has: the first tensor that the kernel stores to."""
    stored = {
        launch.parameters[position]
        for position in stored_parameters(parse_ptx(build.ptx, build.kernel))
    }
    outputs = [each for each in launch.tensors if each.address in stored]
    return next((elements[each.name] for each in outputs or launch.tensors), 0)


def _launch(parameters: Mapping[str, Any]) -> Launch:
    return Launch(
        grid=tuple(parameters["grid"]),
        block=tuple(parameters["block"]),
        parameters=tuple(parameters["parameters"]),
        tensors=tuple(TensorArgument(**each) for each in parameters["tensors"]),
        dynamic_shared_bytes=parameters["dynamic_shared_bytes"],
        tensor_maps=tuple(
            TensorMap(
                **each
                | {part: tuple(each[part]) for part in ("sizes", "strides", "box")}
            )
            for each in parameters["tensor_maps"]
        ),
    )


def _configurations(launch: Mapping[str, Any]) -> Grid | None:
    rows = tuple(tuple(map(str, each)) for each in launch["configurations"])
    if not rows:
        return None
    name = f"configurations of {launch['kernel']}"
    if launch["n_configurations"] > len(rows):
        name += f": the first {len(rows)} of {launch['n_configurations']}"
    resources = ("registers", "spilled bytes", "shared bytes", "occupancy")
    return Grid(name, ("configuration", *resources), rows)
