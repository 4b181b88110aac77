"""`compare profile`: the kernels of each implementation, and the host's part.

Every implementation is called a few times under torch.profiler, in a range that bears
its name; Nsight Systems and Nsight Compute, which do not go together with
torch.profiler, find the same ranges as NVTX's.
"""

from __future__ import annotations

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
from compare.errors import UnavailableError, UsageError
from compare.judge.cases import Case, make_arguments
from compare.judge.parity import Skipped
from compare.judge.requirements import check_memory
from compare.timing import environment, gpu_state, gpu_trace, implementations
from compare.timing.gpu_trace import Launched, Span
from compare.timing.implementations import Implementation
from compare.timing.names import NAMES

CALLS = 10
_WARM_UP_CALLS = 3  # the first compiles


@dataclass(frozen=True)
class ProfileRequest:
    """A command line of compare profile."""

    op: str
    shape: tuple[int, ...] | None  # by default the large one
    dtype: str  # such as "float32"
    params: Mapping[str, Any]
    backends: tuple[str, ...]
    peers: tuple[str, ...]
    nvtx_only: bool  # without torch.profiler


@dataclass(frozen=True)
class KernelUse:
    """Equal launches of one kernel, or equal copies or fills of memory, in a call."""

    launched: Launched
    launches: float
    us: float  # together


@dataclass(frozen=True)
class ImplementationProfile:
    """One call of an implementation."""

    kernels: tuple[KernelUse, ...]  # in the order in which they begin
    gpu_us: float  # all of them
    host_us: float  # of the call, which the profiler slows down


@dataclass(frozen=True)
class ProfileReport:
    """The profiles of an op's implementations, and how to see more."""

    op: str
    case: Case
    environment: Mapping[str, Any]
    # By implementation; None where torch.profiler was left out.
    profiles: Mapping[str, ImplementationProfile | Skipped | None]
    files: tuple[Path, ...]  # trace, table and stacks, or none
    commands: tuple[str, ...]  # that put the ranges before Nsight's eyes


def profile(
    request: ProfileRequest, folder: Path, progress: Callable[[str], None]
) -> ProfileReport:
    """Calls the implementations of an op, each in a range of its own.

    The files go to the folder, which is made if it is missing.

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
    with gpu_state.measuring():
        arguments = _make_arguments(op, case)
        found = implementations.find(op, request.backends, request.peers)
        for name, each in found.items():
            progress(f"warming {NAMES[name]} up")
            profiles[name] = _warm_up(each, arguments)
        calls = {
            name: each.call
            for name, each in found.items()
            if isinstance(each, Implementation) and profiles[name] is None
        }
        progress(f"calling each {CALLS} times")
        if request.nvtx_only:
            _run(calls, arguments)
        elif calls:
            files, spans = _run_under_profiler(op, folder, calls, arguments)
            profiles |= {name: summarize(span) for name, span in spans.items()}
    return ProfileReport(
        op=op.name,
        case=case,
        environment=environment.collect(),
        profiles=profiles,
        files=files,
        commands=nsight_commands(request, list(calls)),
    )


def summarize(span: Span) -> ImplementationProfile:
    """One call, from a span of CALLS calls."""
    uses: dict[Launched, list[float]] = {}
    for work in span.work:
        uses.setdefault(work.launched, []).append(work.us)
    return ImplementationProfile(
        kernels=tuple(
            KernelUse(launched, len(us) / CALLS, sum(us) / CALLS)
            for launched, us in uses.items()
        ),
        gpu_us=sum(work.us for work in span.work) / CALLS,
        host_us=span.host_us / CALLS,
    )


def stacks(spans: Mapping[str, Span]) -> list[tuple[tuple[str, ...], float]]:
    """Stacks and the GPU time of a call that each accounts for, for a flame graph."""
    return [
        ((NAMES[name], *work.stack[1:], work.launched.name), work.us / CALLS)
        for name, span in spans.items()
        for work in span.work
    ]


def nsight_commands(request: ProfileRequest, ranges: Sequence[str]) -> tuple[str, ...]:
    """Command lines of Nsight Systems and, for the first range, of Nsight Compute."""
    shape = ["--shape", "x".join(map(str, request.shape))] if request.shape else []
    settings = (f"{name}={_word(each)}" for name, each in request.params.items())
    command = [
        *("python", "-m", "compare", "profile", request.op, *shape),
        *("--dtype", request.dtype),
        *(word for setting in settings for word in ("--param", setting)),
        *("--backend", *request.backends, "--peers", *request.peers, "--nvtx-only"),
    ]
    systems = ["nsys", "profile", "--trace=cuda,nvtx", f"--output={request.op}"]
    lines = [shlex.join([*systems, *command])]
    if ranges:
        compute = ["ncu", "--nvtx", "--nvtx-include", f"{ranges[0]}/", "--set", "full"]
        lines.append(shlex.join([*compute, *command]))
    return tuple(lines)


def _word(value: Any) -> str:
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
    folder: Path,
    calls: Mapping[str, Callable[..., Any]],
    arguments: tuple[Any, ...],
) -> tuple[tuple[Path, ...], dict[str, Span]]:
    """Writes trace, table and stacks; returns their files and what is in them."""
    # Without acc_events torch 2.11 warns of what it forgets between cycles, of which
    # there is one.
    with torch.profiler.profile(acc_events=True) as profiler:
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
