"""From a request to a report: parity, times and generated code of one op."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import torch

from bindings.errors import BuildError
from bindings.op import Op
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.background import start
from compare.code import findings, rungs
from compare.code.architectures import DEFAULT_ARCHITECTURE, parse_architecture
from compare.code.kernel_code import KernelCode, Side
from compare.code.rungs import Shown
from compare.errors import BuildFailedError, UnavailableError, UsageError
from compare.judge import contracts
from compare.judge.parity import Parity, Prepared, Skipped, check_prepared, prepare
from compare.judge.requirements import check_memory, require_module
from compare.records import rung_times, store
from compare.report.collect_code import Request, choose, inspect, require_kernel
from compare.report.comparison import NOT_ASKED_FOR, Report
from compare.timing import environment, gpu_state, implementations
from compare.timing.measure import measure
from compare.timing.times import Bench, CaseTimes
from compare.timing.turns import TimingError


def compare(request: Request, progress: Callable[[str], None]) -> Report:
    """Runs, times and inspects an op.

    Raises:
        CompareError: It cannot be done.
    """
    try:
        op = OPS[request.op].on_rung(request.rung or "")
    except ValueError as error:
        raise UsageError(f"--rung: {error}") from error
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if "cuda" in request.backends:
        require_module("_cuda" if device.type == "cuda" else "_cpu")
    run = _on_gpu if device.type == "cuda" else _on_cpu
    try:
        return run(request, _prepare(request, op, device, progress), progress)
    except torch.OutOfMemoryError as error:
        raise UnavailableError(
            f"{device} has not enough memory for this --shape: {error}"
        ) from error
    except BuildError as error:
        raise BuildFailedError(str(error)) from error
    except TimingError as error:
        raise UnavailableError(str(error)) from error


def _recorded(op: str) -> Bench | Skipped | None:
    try:
        return store.find(op, Bench)
    except UsageError as error:  # one that cannot be read takes nothing from the rest
        return Skipped(str(error))


def _prepare(
    request: Request, op: Op, device: torch.device, progress: Callable[[str], None]
) -> Prepared:
    trial = TRIALS[op.name]
    default_shape = trial.large_shape if device.type == "cuda" else trial.small_shape
    case = request.case(default_shape)
    check_memory(op, case, device)
    progress("computing the float64 reference")
    try:
        return prepare(op, case, device)
    except (TypeError, ValueError, IndexError) as error:
        raise UsageError(str(error)) from error


def _on_gpu(
    request: Request, prepared: Prepared, progress: Callable[[str], None]
) -> Report:
    """One thing after the other: nothing may disturb the times."""
    device = prepared.tensors[0].device
    parity: dict[str, Parity | Skipped] = {}
    for backend in (*request.backends, "torch"):
        progress(f"running {backend}")
        parity[backend] = check_prepared(prepared, backend)
    progress("measuring times")
    times = _times(request, prepared, parity)
    name = "sm_{}{}".format(*torch.cuda.get_device_capability(device))
    try:
        architecture = request.architecture or parse_architecture(name)
    except ValueError as error:
        unknown = Skipped(f"{error}, by --arch")
        skipped = dict.fromkeys(request.sides, unknown)
        return _report(request, prepared, parity, times, skipped)
    progress("generating code")
    shown = choose(request, prepared.case, architecture)
    codes = {
        side: inspect(side, shown[side].op, prepared.case, architecture, request)
        for side in request.sides
    }
    report = _report(request, prepared, parity, times, codes)
    return replace(report, shown=shown, gains=_gains(prepared, shown))


def _on_cpu(
    request: Request, prepared: Prepared, progress: Callable[[str], None]
) -> Report:
    """All at once: the interpreter and the compilers are processes of their own."""
    architecture = request.architecture or parse_architecture(DEFAULT_ARCHITECTURE)
    # The slowest comes first.
    order = sorted((*request.backends, "torch"), key="triton".__ne__)
    parity = {backend: start(check_prepared, prepared, backend) for backend in order}
    shown = choose(request, prepared.case, architecture)
    case = prepared.case
    codes = {
        side: start(inspect, side, shown[side].op, case, architecture, request)
        for side in request.sides
    }
    waiting: dict[str, Future[Any]] = {
        **parity,
        **{f"the code of {side}": future for side, future in codes.items()},
    }
    while waiting:
        progress("running " + ", ".join(waiting))
        next(iter(waiting.values())).exception()
        waiting = {name: each for name, each in waiting.items() if not each.done()}
    report = _report(
        request,
        prepared,
        {name: parity[name].result() for name in (*request.backends, "torch")},
        Skipped("times need a GPU"),
        {side: future.result() for side, future in codes.items()},
    )
    return replace(
        report,
        shown=shown,
        gains=rung_times.recorded_gains(prepared.op, case),
        recorded=_recorded(prepared.op.name),
    )


def _times(
    request: Request, prepared: Prepared, parity: dict[str, Parity | Skipped]
) -> CaseTimes | Skipped:
    if obstacle := gpu_state.obstacle():
        return Skipped(obstacle)
    found = implementations.find(prepared.op, request.backends, ["torch"])
    for name, each in parity.items():
        if isinstance(each, Skipped) or not each.passed:
            found[name] = Skipped("it did not pass parity")
    return measure(prepared, found)


def _gains(prepared: Prepared, shown: Mapping[Side, Shown]) -> dict[Side, float]:
    """How many times as fast as the twin a call is, where it takes another kernel."""
    sides = [side for side, each in shown.items() if each.taken and not each.is_missing]
    if not sides or gpu_state.obstacle():
        return {}
    timings = {
        rung: measure(prepared, implementations.find(op, sides, ())).timings
        for rung, op in rung_times.rungs_of(prepared.op).items()
        if rung in (rungs.TWIN, rung_times.CALL)
    }
    return rung_times.gains_of(timings)


def _report(
    request: Request,
    prepared: Prepared,
    parity: dict[str, Parity | Skipped],
    times: CaseTimes | Skipped,
    codegen: Mapping[Side, KernelCode | Skipped],
) -> Report:
    op, case = prepared.op, prepared.case
    require_kernel(codegen.values(), request.kernel)
    for side in rungs.SIDES:  # keys of the schema, whatever was asked for
        parity.setdefault(side, NOT_ASKED_FOR)
    codes = [each for each in codegen.values() if isinstance(each, KernelCode)]
    contract = TRIALS[op.name].code_contract if contracts.applies(op, case) else None
    broken = (contracts.violations(contract, each) for each in codes if contract)
    return Report(
        op=op.name,
        environment=environment.collect(),
        case=case,
        backends=request.backends,
        parity=parity,
        times=times,
        codegen={side: codegen.get(side, NOT_ASKED_FOR) for side in rungs.SIDES},
        findings=findings.find(*codes) if len(codes) == len(rungs.SIDES) else (),
        violations=tuple(itertools.chain.from_iterable(broken)),
    )
