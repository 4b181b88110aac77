"""`compare bench`: an op's times beside those of its peers, over cases and sizes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bindings.op import Op
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare import peers
from compare.errors import UnavailableError, UsageError
from compare.judge.cases import Case
from compare.judge.parity import Parity, Prepared, Skipped, check_prepared, prepare
from compare.judge.requirements import check_memory, memory_shortage, require_module
from compare.timing import (
    ceiling,
    compiling,
    environment,
    gpu_state,
    implementations,
    start,
)
from compare.timing.implementations import Implementation
from compare.timing.measure import measure
from compare.timing.times import Bench, CaseTimes, Timing
from compare.timing.unfinished import Unfinished


@dataclass(frozen=True)
class Request:
    """A command line, or a run of compare record, to be measured."""

    op: str
    shapes: tuple[tuple[int, ...], ...] | None  # by default those it is judged by
    dtypes: tuple[str, ...]  # such as "float32"
    params: Mapping[str, Any] | None  # by default every variant of the op
    backends: tuple[str, ...]
    peers: tuple[str, ...]
    sweep: bool  # all sizes, too
    starts: bool = True  # first calls, too, in processes of their own


@dataclass(frozen=True)
class Plan:
    """The cases of a request that this GPU's memory is enough for."""

    cases: tuple[Case, ...]
    sweep: tuple[Case, ...]
    omitted: tuple[str, ...]  # for want of memory, a sentence each


def plan(request: Request) -> Plan:
    """The cases of a request.

    Raises:
        CompareError: There is no GPU, no module, or not enough memory for a shape that
            was asked for.
    """
    if obstacle := gpu_state.obstacle():
        raise UnavailableError(obstacle)
    if "cuda" in request.backends:
        require_module("_cuda")
    op = OPS[request.op]
    dtypes = [getattr(torch, name) for name in request.dtypes]
    trial = TRIALS[op.name]
    timed = trial.timed_variants or trial.variants
    variants = timed if request.params is None else (request.params,)
    omitted: list[str] = []
    planned = [
        Case(shape, dtype, params=params, direction=op.direction)
        for params in variants
        for dtype in dtypes
        if dtype == torch.float32
        or params == request.params
        or params not in trial.float32_variants
        for shape in request.shapes or trial.benchmark_shapes
    ]
    swept = [
        Case(shape, dtype, params=variants[0], direction=op.direction)
        for dtype in dtypes
        for shape in (trial.sweep_shapes if request.sweep else ())
    ]
    if request.shapes is None:
        planned = _fitting(op, planned, omitted)
    swept = _fitting(op, swept, omitted)
    for case in planned:
        check_memory(op, case, torch.device("cuda"))
    return Plan(tuple(planned), tuple(swept), tuple(omitted))


def compile_ahead(requests: Sequence[Request], progress: Callable[[str], None]) -> None:
    """Fills the caches on disk with what the requests are going to time.

    Raises:
        CompareError: It cannot be done.
    """
    tasks = [
        (request.op, case, name)
        for request, planned in zip(requests, map(plan, requests), strict=True)
        for case in (*planned.cases, *planned.sweep)
        for name in (*request.backends, *request.peers)
    ]
    compiling.compile_ahead(tasks, progress)


def bench(
    request: Request,
    progress: Callable[[str], None],
    unfinished: Unfinished[CaseTimes] | None = None,
) -> Bench:
    """Measures an op and its peers.

    Args:
        request: What to measure.
        progress: Is told what is going on.
        unfinished: Has cases that need not be measured again, and is given the others.

    Raises:
        CompareError: It cannot be done.
    """
    planned = plan(request)
    op = OPS[request.op]
    surroundings = environment.collect()

    def times_of(case: Case) -> CaseTimes:
        found = unfinished.find(case) if unfinished else None
        times = found or _measure(request, op, case, progress)
        if unfinished:
            unfinished.keep(times)
        return times

    with gpu_state.measuring():
        cases = [times_of(case) for case in planned.cases]
        sweep = [times_of(case) for case in planned.sweep]
        timed = (
            name
            for times in cases
            for name, each in times.timings.items()
            if isinstance(each, Timing)
        )
        names = list(dict.fromkeys(timed))
        free_memory()
        starts = (
            start.measure(op.name, TRIALS[op.name].large_shape, names, progress)
            if request.starts
            else {}
        )
        progress("measuring the rate of matmul")
        is_float8 = TRIALS[op.name].dtype_parameter
        rate = ceiling.float8_matmul_rate if is_float8 else ceiling.matmul_rate
        matmul = {name: rate(getattr(torch, name)) for name in request.dtypes}
    return Bench(
        op=op.name,
        environment=surroundings,
        cases=tuple(cases),
        sweep=tuple(sweep),
        start=starts,
        matmul=matmul,
        omitted=planned.omitted,
        notes={
            each.name: each.note
            for each in peers.of(op.name)
            if each.note and each.name in names
        },
    )


def failures(bench: Bench, ours: tuple[str, ...]) -> list[str]:
    """A sentence for each case in which one of our implementations has no time."""
    return [
        f"{name}, {'x'.join(map(str, times.case.shape))}: {each.reason}"
        for times in (*bench.cases, *bench.sweep)
        for name, each in times.timings.items()
        if name in ours and isinstance(each, Skipped)
    ]


def _measure(
    request: Request, op: Op, case: Case, progress: Callable[[str], None]
) -> CaseTimes:
    free_memory()
    shape = "x".join(map(str, case.shape))
    progress(f"{op.name} {shape} {case.dtype}: parity")
    try:
        prepared = prepare(op, case, "cuda")
    except (TypeError, ValueError, IndexError) as error:
        raise UsageError(str(error)) from error
    found = implementations.find(op, request.backends, request.peers)
    checked = {name: _checked(prepared, each) for name, each in found.items()}
    progress(f"{op.name} {shape} {case.dtype}: times")
    return measure(prepared, checked)


def _fitting(op: Op, cases: list[Case], omitted: list[str]) -> list[Case]:
    """The cases that the GPU's memory is enough for; the others are omitted."""
    fitting = []
    for case in cases:
        if shortage := memory_shortage(op, case, torch.device("cuda")):
            omitted.append(f"{str(case.dtype).removeprefix('torch.')} {shortage}")
        else:
            fitting.append(case)
    return fitting


def free_memory() -> None:
    """Lets go of the graphs and buffers of the case before."""
    gc.unfreeze()
    gc.collect()  # graphs hold the tensors that they were captured with, and those them
    gc.freeze()  # or every capture, which collects, goes through all modules again
    torch.cuda.empty_cache()


def _checked(
    prepared: Prepared, implementation: Implementation | Skipped
) -> Implementation | Skipped:
    """Ours have to pass parity, which looks closer than the timing lab does."""
    if isinstance(implementation, Skipped) or implementation.bare_launcher is None:
        return implementation
    parity = check_prepared(prepared, implementation.name)
    if isinstance(parity, Parity) and not parity.passed:
        return Skipped(f"it did not pass parity: {parity.problem}")
    return parity if isinstance(parity, Skipped) else implementation
