"""From a request to a report: parity, times and generated code of one op."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from bindings.errors import BuildError, UnsupportedError
from bindings.op import Argument, Op, as_tuple
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.code import findings, kernel_code, rungs
from compare.code.architectures import (
    DEFAULT_ARCHITECTURE,
    Architecture,
    parse_architecture,
)
from compare.code.kernel_code import KernelCode, Side
from compare.code.rungs import Shown
from compare.errors import (
    BuildFailedError,
    CodegenUnavailable,
    CompilationFailed,
    UnavailableError,
    UsageError,
)
from compare.judge import contracts
from compare.judge.cases import Case
from compare.judge.parity import Parity, Prepared, Skipped, check_prepared, prepare
from compare.judge.requirements import check_memory, require_module
from compare.records import rung_times, store
from compare.report.comparison import NOT_ASKED_FOR, CaseReport, Report
from compare.timing import environment, gpu_state, implementations
from compare.timing.measure import measure
from compare.timing.times import Bench, CaseTimes
from compare.timing.turns import TimingError

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Request:
    """What the user asks for; None is the default.

    Attributes:
        op: The name of the op.
        shape: Of its inputs.
        dtype: Of its inputs, such as "float32".
        params: Its other arguments, by name.
        backends: What to compare.
        architecture: What to generate code for.
        same_ptxas: Whether nvcc's assembler makes the machine code of both sides.
        kernel: Of which launch to show the code, counted from 0.
        rung: Of which rung everything is; by default the code is the twin's, and what
            runs is what a call takes.
    """

    op: str
    shape: tuple[int, ...] | None
    dtype: str
    params: dict[str, Any]
    backends: tuple[str, ...]
    architecture: Architecture | None
    same_ptxas: bool = False
    kernel: int = 0
    rung: str | None = None


def compare(request: Request, progress: Callable[[str], None]) -> Report:
    """Runs, times and inspects an op.

    Args:
        request: What to do.
        progress: Is told, from time to time, what is going on.

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
    try:
        prepared = _prepare(request, op, device, progress)
        if device.type == "cuda":
            case = _on_gpu(request, prepared, progress)
        else:
            case = _on_cpu(request, prepared, progress)
    except torch.OutOfMemoryError as error:
        raise UnavailableError(
            f"{device} has not enough memory for this --shape: {error}"
        ) from error
    except CompilationFailed as error:
        raise BuildFailedError(f"{error}\n{error.log}") from error
    except BuildError as error:
        raise BuildFailedError(str(error)) from error
    except TimingError as error:
        raise UnavailableError(str(error)) from error
    recorded = None if device.type == "cuda" else _recorded(op.name)
    return Report(op.name, environment.collect(), (case,), recorded)


def _recorded(op: str) -> Bench | Skipped | None:
    try:
        return store.find(op)
    except UsageError as error:  # one that cannot be read takes nothing from the rest
        return Skipped(str(error))


def _prepare(
    request: Request, op: Op, device: torch.device, progress: Callable[[str], None]
) -> Prepared:
    trial = TRIALS[op.name]
    default_shape = trial.large_shape if device.type == "cuda" else trial.small_shape
    case = Case(
        shape=request.shape or default_shape,
        dtype=getattr(torch, request.dtype),
        params=request.params,
        direction=op.direction,
    )
    check_memory(op, case, device)
    progress("computing the float64 reference")
    try:
        return prepare(op, case, device)
    except (TypeError, ValueError, IndexError) as error:
        raise UsageError(str(error)) from error


def _on_gpu(
    request: Request, prepared: Prepared, progress: Callable[[str], None]
) -> CaseReport:
    """One thing after the other: nothing may disturb the times."""
    device = prepared.tensors[0].device
    parity: dict[str, Parity | Skipped] = {}
    for backend in (*request.backends, "torch"):
        progress(f"running {backend}")
        parity[backend] = check_prepared(prepared, backend)
    progress("measuring times")
    times = _times(request, prepared, parity)
    architecture, unknown = request.architecture, Skipped("")
    if architecture is None:
        try:
            name = "sm_{}{}".format(*torch.cuda.get_device_capability(device))
            architecture = parse_architecture(name)
        except ValueError as error:
            unknown = Skipped(f"{error}, by --arch")
    if architecture is None:
        codegen: dict[str, KernelCode | Skipped] = dict.fromkeys(rungs.SIDES, unknown)
        return _case_report(request, prepared, parity, times, codegen, {}, {})
    progress("generating code")
    shown = _shown(request, prepared, architecture)
    codes: dict[str, KernelCode | Skipped] = {
        side: _inspect(side, request, prepared, shown[side].op, architecture)
        for side in shown
    }
    gains = _gains(prepared, shown)
    return _case_report(request, prepared, parity, times, codes, shown, gains)


def _on_cpu(
    request: Request, prepared: Prepared, progress: Callable[[str], None]
) -> CaseReport:
    """All at once: the interpreter and the compilers are processes of their own."""
    architecture = request.architecture or parse_architecture(DEFAULT_ARCHITECTURE)
    # What takes longest comes first.
    order = sorted((*request.backends, "torch"), key="triton".__ne__)
    parity = {backend: _start(check_prepared, prepared, backend) for backend in order}
    shown = _shown(request, prepared, architecture)
    codegen: dict[str, Future[KernelCode | Skipped]] = {
        side: _start(_inspect, side, request, prepared, each.op, architecture)
        for side, each in shown.items()
    }
    _await(parity, codegen, progress)
    return _case_report(
        request,
        prepared,
        {name: parity[name].result() for name in (*request.backends, "torch")},
        Skipped("times need a GPU"),
        {name: future.result() for name, future in codegen.items()},
        shown,
        rung_times.recorded_gains(prepared.op, prepared.case),
    )


def _start(function: Callable[..., _Result], *arguments: Any) -> Future[_Result]:
    """Calls the function in a thread that nobody waits for when the program ends.

    A pool of threads would be waited for, also by the user who presses Ctrl-C.
    """
    future: Future[_Result] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _await(
    parity: dict[str, Future[Parity | Skipped]],
    codegen: dict[str, Future[KernelCode | Skipped]],
    progress: Callable[[str], None],
) -> None:
    waiting: dict[str, Future[Any]] = {
        **parity,
        **{f"the code of {name}": future for name, future in codegen.items()},
    }
    while waiting:
        progress("running " + ", ".join(waiting))
        next(iter(waiting.values())).exception()
        waiting = {name: each for name, each in waiting.items() if not each.done()}


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


def _inspect(
    side: Side,
    request: Request,
    prepared: Prepared,
    op: Op,
    architecture: Architecture,
) -> KernelCode | Skipped:
    sources = {"cuda_inline": "cuda"}
    if side not in {sources.get(each, each) for each in request.backends}:
        return NOT_ASKED_FOR
    arguments = _launcher_arguments(op, prepared)
    try:
        if side == "cuda":
            return kernel_code.inspect_cuda(
                op, arguments, architecture, number=request.kernel
            ).disassembled()
        return kernel_code.inspect_triton(
            op,
            arguments,
            architecture,
            number=request.kernel,
            same_ptxas=request.same_ptxas,
        ).disassembled()
    except CodegenUnavailable as error:
        return Skipped(str(error))


def _launcher_arguments(op: Op, prepared: Prepared) -> tuple[Argument, ...]:
    outputs = as_tuple(op.allocate(*prepared.arguments))
    return op.arguments(*outputs, *prepared.arguments)


def _shown(
    request: Request, prepared: Prepared, architecture: Architecture
) -> Mapping[Side, Shown]:
    op = OPS[request.op]
    try:
        return rungs.choose(
            op,
            request.rung,
            lambda on_rung: _launcher_arguments(on_rung, prepared),
            architecture,
        )
    except UnsupportedError as error:
        raise UsageError(f"--rung: {error}") from error


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


def require_kernel(codes: Mapping[str, KernelCode | Skipped], number: int) -> None:
    """Sees to it that a launch that was asked for is there, on one side at least.

    Args:
        codes: By side.
        number: Of the launch, counted from 0, which always is there.

    Raises:
        UsageError: It is on neither.
    """
    reasons = [each.reason for each in codes.values() if isinstance(each, Skipped)]
    if number and len(reasons) == len(codes):
        raise UsageError(f"--kernel: {reasons[0]}")


def _case_report(
    request: Request,
    prepared: Prepared,
    parity: dict[str, Parity | Skipped],
    times: CaseTimes | Skipped,
    codegen: Mapping[str, KernelCode | Skipped],
    shown: Mapping[Side, Shown],
    gains: Mapping[Side, float],
) -> CaseReport:
    op, case = prepared.op, prepared.case
    require_kernel(codegen, request.kernel)
    for side in ("cuda", "triton"):  # keys of the schema, whatever was asked for
        parity.setdefault(side, NOT_ASKED_FOR)
    cuda, triton = codegen["cuda"], codegen["triton"]
    found: tuple[findings.Finding, ...] = ()
    if isinstance(cuda, KernelCode) and isinstance(triton, KernelCode):
        found = findings.find(cuda, triton)
    contract = TRIALS[op.name].code_contract if contracts.applies(op, case) else None
    broken = [
        each
        for code in (cuda, triton)
        if contract and isinstance(code, KernelCode)
        for each in contracts.violations(contract, code)
    ]
    return CaseReport(
        case,
        request.backends,
        parity,
        times,
        codegen,
        found,
        tuple(broken),
        shown=shown,
        gains=gains,
    )
