"""`compare profile`: what each implementation has the GPU do, and the host for it.

Every implementation is called a few times under torch.profiler, in a range that bears
its name; Nsight Systems and Nsight Compute, which do not go together with
torch.profiler, find the same ranges as NVTX's.
"""

from __future__ import annotations

import itertools
import json
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bindings.errors import BuildError
from bindings.op import Op
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.errors import BuildFailedError, UnavailableError, UsageError
from compare.judge.cases import Case, make_arguments
from compare.judge.parity import Skipped
from compare.judge.requirements import check_memory
from compare.timing import (
    environment,
    gpu_state,
    gpu_trace,
    implementations,
)
from compare.timing.gpu_trace import Dimensions, Frame, Span, Work
from compare.timing.implementations import Implementation
from compare.timing.names import NAMES

CALLS = 10
_WARM_UP_CALLS = 3  # the first compiles


@dataclass(frozen=True)
class ProfileRequest:
    """What to look into; None is the default.

    Attributes:
        op: The name of the op.
        shape: Of its inputs; by default the large one.
        dtype: Of its inputs, such as "float32".
        params: Its other arguments, by name.
        backends: Which of ours.
        peers: Which of the others.
        nvtx_only: Whether to leave torch.profiler out.
    """

    op: str
    shape: tuple[int, ...] | None
    dtype: str
    params: Mapping[str, Any]
    backends: tuple[str, ...]
    peers: tuple[str, ...]
    nvtx_only: bool


@dataclass(frozen=True)
class KernelUse:
    """Equal launches of one kernel, or equal copies or fills of memory.

    Attributes:
        name: Its full name.
        launches: In each call of the implementation.
        us: What they take together, in each call.
        grid: Blocks in x, y and z; None for what is no kernel.
        block: Threads of a block in x, y and z, likewise.
        registers: Of one thread, likewise.
        shared_bytes: Shared memory of a block, likewise.
    """

    name: str
    launches: float
    us: float
    grid: Dimensions | None
    block: Dimensions | None
    registers: int | None
    shared_bytes: int | None


@dataclass(frozen=True)
class ImplementationProfile:
    """One call of an implementation.

    Attributes:
        kernels: What it has the GPU do, in the order in which that begins.
        gpu_us: How long all of it takes.
        host_us: How long the call takes the host, which the profiler slows down.
    """

    kernels: tuple[KernelUse, ...]
    gpu_us: float
    host_us: float


@dataclass(frozen=True)
class ProfileReport:
    """What was found.

    Attributes:
        op: Its name.
        case: What it was called on.
        environment: Versions and devices.
        profiles: By implementation; None where torch.profiler was left out.
        files: Those that were written: trace, table and stacks, or none.
        commands: The command lines that put the ranges before Nsight's eyes.
    """

    op: str
    case: Case
    environment: Mapping[str, Any]
    profiles: Mapping[str, ImplementationProfile | Skipped | None]
    files: tuple[Path, ...]
    commands: tuple[str, ...]


def profile(
    request: ProfileRequest, folder: Path, progress: Callable[[str], None]
) -> ProfileReport:
    """Calls the implementations of an op, each in a range of its own.

    Args:
        request: What to look into.
        folder: Where the files go; it is made if it is missing.
        progress: Is told, from time to time, what is going on.

    Raises:
        CompareError: It cannot be done.
    """
    if obstacle := gpu_state.obstacle():
        raise UnavailableError(obstacle)
    op = OPS[request.op]
    case = Case(
        shape=request.shape or TRIALS[op.name].large_shape,
        dtype=getattr(torch, request.dtype),
        params=request.params,
        direction=op.direction,
    )
    if not request.nvtx_only:
        _make(folder)
    profiles: dict[str, ImplementationProfile | Skipped | None] = {}
    files: tuple[Path, ...] = ()
    try:
        arguments = _make_arguments(op, case)
        found = implementations.find(op, request.backends, request.peers)
        for name, each in found.items():
            progress(f"warming {NAMES[name]} up")
            profiles[name] = _warm_up(each, arguments)
        ready = [name for name, each in profiles.items() if each is None]
        calls = {
            name: each.call
            for name, each in found.items()
            if name in ready and isinstance(each, Implementation)
        }
        progress(f"calling each {CALLS} times")
        if request.nvtx_only:
            _run(calls, arguments)
        elif calls:
            files, spans = _run_under_profiler(op, case, folder, calls, arguments)
            profiles |= {name: summarize(span) for name, span in spans.items()}
    except torch.OutOfMemoryError as error:
        raise UnavailableError(
            f"the GPU has not enough memory for this --shape: {error}"
        ) from error
    except BuildError as error:
        raise BuildFailedError(str(error)) from error
    return ProfileReport(
        op=op.name,
        case=case,
        environment=environment.collect(),
        profiles=profiles,
        files=files,
        commands=nsight_commands(request, ready),
    )


def summarize(span: Span) -> ImplementationProfile:
    """One call, from a span of CALLS calls."""
    uses: dict[Any, list[Work]] = {}
    for work in span.work:
        launch = (work.name, work.grid, work.block, work.registers, work.shared_bytes)
        uses.setdefault(launch, []).append(work)
    return ImplementationProfile(
        kernels=tuple(
            KernelUse(
                name=alike[0].name,
                launches=len(alike) / CALLS,
                us=sum(work.us for work in alike) / CALLS,
                grid=alike[0].grid,
                block=alike[0].block,
                registers=alike[0].registers,
                shared_bytes=alike[0].shared_bytes,
            )
            for alike in uses.values()
        ),
        gpu_us=sum(work.us for work in span.work) / CALLS,
        host_us=span.host_us / CALLS,
    )


def stacks(spans: Mapping[str, Span]) -> list[tuple[tuple[Frame, ...], float]]:
    """Where the GPU time of a call of each comes from, for a flame graph."""
    return [
        (
            (
                Frame("implementation", NAMES[name]),
                *work.stack[1:],
                Frame("kernel", work.name),
            ),
            work.us / CALLS,
        )
        for name, span in spans.items()
        for work in span.work
    ]


def nsight_commands(request: ProfileRequest, ranges: Sequence[str]) -> tuple[str, ...]:
    """Command lines of Nsight Systems and, for the first range, of Nsight Compute."""
    shape = ["--shape", "x".join(map(str, request.shape))] if request.shape else []
    params = itertools.chain.from_iterable(
        ("--param", f"{name}={_parameter(value)}")
        for name, value in request.params.items()
    )
    command = [
        *("python", "-m", "compare", "profile", request.op, *shape),
        *("--dtype", request.dtype, *params),
        *("--backend", *request.backends, "--peers", *request.peers, "--nvtx-only"),
    ]
    systems = ["nsys", "profile", "--trace=cuda,nvtx", f"--output={request.op}"]
    lines = [shlex.join([*systems, *command])]
    if ranges:
        compute = ["ncu", "--nvtx", "--nvtx-include", f"{ranges[0]}/", "--set", "full"]
        lines.append(shlex.join([*compute, *command]))
    return tuple(lines)


def _parameter(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _make(folder: Path) -> None:
    # Now rather than when the work is done.
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UnavailableError(
            f"--output: {folder} cannot be written to ({error.strerror})"
        ) from error


def _make_arguments(op: Op, case: Case) -> tuple[Any, ...]:
    check_memory(op, case, torch.device("cuda"))
    try:
        arguments = make_arguments(op, case, "cuda")
        op.allocate(*arguments)  # raises for what the op cannot serve
    except (TypeError, ValueError, IndexError) as error:
        raise UsageError(str(error)) from error
    return arguments


def _warm_up(
    implementation: Implementation | Skipped, arguments: tuple[Any, ...]
) -> Skipped | None:
    """Compiles it; what is wrong with it, if it cannot be called on these arguments."""
    if isinstance(implementation, Skipped):
        return implementation
    try:
        for _ in range(_WARM_UP_CALLS):
            implementation.call(*arguments)
        torch.cuda.synchronize()
    except (torch.OutOfMemoryError, BuildError):
        raise
    except Exception as error:  # whatever a library of others raises
        return Skipped(f"raises {type(error).__name__}: {error}")
    return None


def _run(calls: Mapping[str, Callable[..., Any]], arguments: tuple[Any, ...]) -> None:
    """Calls each in a range of its name, one after the other has ended on the GPU."""
    for name, call in calls.items():
        torch.cuda.synchronize()
        with torch.cuda.nvtx.range(name):
            with torch.profiler.record_function(name):
                for _ in range(CALLS):
                    call(*arguments)
            torch.cuda.synchronize()


def _run_under_profiler(
    op: Op,
    case: Case,
    folder: Path,
    calls: Mapping[str, Callable[..., Any]],
    arguments: tuple[Any, ...],
) -> tuple[tuple[Path, ...], dict[str, Span]]:
    """Writes trace, table and stacks; returns their files and what is in them."""
    activities = [
        torch.profiler.ProfilerActivity.CPU,
        torch.profiler.ProfilerActivity.CUDA,
    ]
    # Else torch 2.11 warns of what it forgets between cycles, of which there is one.
    with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
        # The first operation under a profiler waits for it to be ready.
        torch.empty(1, device="cuda").zero_()
        _run(calls, arguments)
    trace_file, table_file, stacks_file = (
        folder / f"{op.name}.{suffix}"
        for suffix in ("trace.json", "table.txt", "stacks.txt")
    )
    profiler.export_chrome_trace(str(trace_file))
    spans = gpu_trace.read(json.loads(trace_file.read_text("utf-8")), list(calls))
    if not any(span.work for span in spans.values()):
        raise UnavailableError(
            "torch.profiler saw nothing of what the GPU did, as when another profiler "
            "holds CUPTI: under Nsight, give --nvtx-only"
        )
    table = profiler.key_averages().table(
        sort_by="self_device_time_total", row_limit=-1
    )
    table_file.write_text(table, "utf-8")
    stacks_file.write_text(gpu_trace.collapsed(stacks(spans)), "utf-8")
    return (trace_file, table_file, stacks_file), spans
