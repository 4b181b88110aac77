"""Worker: what Triton compiles for a Python function that launches its kernels.

The function runs on meta tensors under a driver that records launches and makes none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from triton.compiler.errors import CompilationError
from triton.errors import TritonError

from compare.code import autotuning, tools
from compare.code.architectures import Architecture, parse_architecture
from compare.code.autotuning import MAX_CONFIGURATIONS, Configuration
from compare.code.launch_parameters import observed_launch
from compare.code.occupancy import occupancy
from compare.code.triton_offline import TritonLaunch
from compare.errors import CodegenUnavailable, CompilationFailed, UnavailableError
from compare.pairs import callers, complaints
from compare.pairs.pretended_gpu import pretend


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Records the launches of one call, and describes one of them.

    Args:
        request: The "caller" as callers.make takes it; the "inputs" as `triton_side`
            describes them; the name of the "architecture"; the "number" of the launch,
            counted from 0; and the user's "files".

    Returns:
        The "titles" of all launches, and the "launch" as a dictionary; or why there is
        none, as "skipped".

    Raises:
        UnavailableError: The code needs a real GPU.
        UsageError: The file has no such function.
    """
    caller, files = request["caller"], [Path(each) for each in request["files"]]
    path = Path(caller["path"])
    architecture = parse_architecture(request["architecture"])
    is_plain = caller["style"] == "file"
    inputs = [_restored(each) for each in request["inputs"]]
    with (
        pretend(path, "meta", architecture) as gpu,
        autotuning.observed_autotuners(gpu.launches) as configurations,
    ):
        # A model's weights are on the meta device too, without a word of the solution.
        with contextlib.nullcontext() if is_plain else torch.device("meta"):
            function = callers.make(caller)
        gpu.launches.clear()
        if reason := _obstacle(function, inputs, files):
            return {"skipped": reason}
        launches, number = gpu.launches, request["number"]
        if number >= len(launches):
            kernels = "kernel" if len(launches) == 1 else "kernels"
            reason = f"{path.name} launches {len(launches) or 'no'} {kernels}"
            return {"skipped": reason}
        chosen = configurations.get(number, ())
        try:
            with gpu.paused():
                launch = _described(launches[number], chosen, architecture)
        except (CodegenUnavailable, CompilationFailed) as error:
            return {"skipped": str(error)}
        return {"titles": [each.title for each in launches], "launch": launch}


def _obstacle(
    function: Callable[..., Any], inputs: Sequence[Any], files: Sequence[Path]
) -> str:
    """Calls the function; why that is not possible, or empty."""
    try:
        function(*inputs)
    except UnavailableError:
        raise
    except CompilationError as error:
        place, message = _place_of(error, files)
        return f"{place}: Triton cannot compile it: {message}"
    except TritonError as error:
        return f"Triton cannot compile it: {complaints.describe(error, files)}"
    except Exception as error:  # of any kind: it is the user's code
        return f"without the data of its inputs: {complaints.describe(error, files)}"
    return ""


def _restored(value: Any) -> Any:
    """A described value with meta tensors in the places of shapes."""
    if isinstance(value, Mapping):
        if "tensor" in value:
            return _meta_tensor(value)
        return {name: _restored(each) for name, each in value.items()}
    return [*map(_restored, value)] if isinstance(value, list) else value


def _meta_tensor(value: Mapping[str, Any]) -> Tensor:
    dtype = getattr(torch, value["tensor"])
    shape, strides, offset = value["shape"], value["strides"], value["offset"]
    extent = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    memory = torch.empty(max(offset + extent, 0), dtype=dtype, device="meta")
    return memory.as_strided(shape, strides, offset)


def _place_of(error: CompilationError, files: Sequence[Path]) -> tuple[str, str]:
    """Where in the user's files Triton found what it cannot compile, and its words."""
    place = complaints.place_of(error, files) or files[0].name
    innermost = error
    # The kernel calls a function, and that another, which may be Triton's own.
    while isinstance(innermost, CompilationError):
        error = innermost
        place = _line_in_kernel(error, files) or place
        innermost = innermost.__cause__
    message = error.error_message or str(error.__cause__ or "")
    return place, complaints.first_line(message)


def _line_in_kernel(error: CompilationError, files: Sequence[Path]) -> str:
    """Where an error is in a kernel of the user's: "mine.py:12", or ""."""
    names = {str(each) for each in files}
    modules = [
        each
        for each in sys.modules.values()
        if (getattr(each, "__file__", None) or "") in names
    ]
    for value in (value for module in modules for value in vars(module).values()):
        function: Any = value
        while hasattr(function, "fn") and not hasattr(function, "raw_src"):
            function = function.fn  # of an autotuner or of heuristics
        is_it = getattr(function, "src", None) == error.src
        if is_it and hasattr(error.node, "lineno"):
            lines = (each.lstrip() for each in function.raw_src)
            n_decorators = [each.startswith("def ") for each in lines].index(True)
            line = function.starting_line_number + n_decorators + error.node.lineno - 1
            return f"{Path(function.fn.__code__.co_filename).name}:{line}"
    return ""


def _described(
    launch: TritonLaunch,
    configurations: tuple[Configuration, ...],
    architecture: Architecture,
) -> dict[str, Any]:
    return {
        "kernel": launch.kernel,
        "ptx": launch.ptx,
        "cubin": launch.cubin,
        "compiler": launch.compiler,
        "log": _log_of(launch, architecture),
        "parameters": dataclasses.asdict(observed_launch(launch)),
        "elements": {
            name: tensor.numel()
            for name, each in launch.arguments.items()
            if isinstance(tensor := getattr(each, "base", each), Tensor)
        },
        "n_configurations": len(configurations),
        "configurations": [
            _row(each, architecture) for each in configurations[:MAX_CONFIGURATIONS]
        ],
    }


def _log_of(launch: TritonLaunch, architecture: Architecture) -> str:
    """What ptxas says of a kernel with a stack, where spills are."""
    resources = tools.resources_of(launch.cubin, launch.kernel, architecture)
    if not resources.stack_bytes:
        return ""
    return launch.assembler_log


def _row(configuration: Configuration, architecture: Architecture) -> list[str]:
    """One row of the table of configurations."""
    launch = configuration.launch
    if launch is None:
        failure = complaints.first_line(configuration.failure)
        return [configuration.text, "", "", "", failure]
    resources = tools.resources_of(launch.cubin, launch.kernel, architecture)
    log = _log_of(launch, architecture)
    report = (
        tools.parse_assembler_report(log, launch.kernel)
        if log
        else tools.AssemblerReport()
    )
    shared_bytes = resources.static_shared_bytes + launch.dynamic_shared_bytes
    threads = launch.block[0]
    held = occupancy(architecture, resources.registers, threads, shared_bytes)
    return [
        configuration.text,
        str(resources.registers),
        str(report.spill_store_bytes + report.spill_load_bytes),
        str(shared_bytes),
        f"{held.fraction:.0%}",
    ]
