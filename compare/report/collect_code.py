"""The code of an op: for `compare`, and for `compare study`, which runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from bindings.errors import UnsupportedError
from bindings.op import Op
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.code import kernel_code, rungs
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
    UsageError,
)
from compare.judge.cases import Case, launcher_arguments
from compare.judge.parity import Skipped
from compare.records import rung_times
from compare.report.comparison import Report
from compare.timing import environment
from compare.timing.names import DEFAULT_BACKENDS

_NOT_RUN = Skipped("compare study runs nothing")


@dataclass(frozen=True)
class Request:
    """The options of `compare <op>` or `compare study`."""

    op: str
    shape: tuple[int, ...] | None  # None for what suits the device, or the large one
    dtype: str  # such as "float32"
    params: Mapping[str, Any]
    architecture: Architecture | None = None  # by default the GPU's, or the usual one
    backends: tuple[str, ...] = DEFAULT_BACKENDS
    same_ptxas: bool = False  # nvcc's assembler makes the machine code of both sides
    kernel: int = 0  # the launch whose code is shown, counted from 0
    # By default the code shown is the twin's, and what runs is what a call takes.
    rung: str | None = None
    shows_sass: bool = True  # which takes a second more

    @property
    def sides(self) -> list[Side]:
        """The sides whose sources the backends are built from."""
        sources = {each.removesuffix("_inline") for each in self.backends}
        return [side for side in rungs.SIDES if side in sources]

    def case(self, default_shape: tuple[int, ...]) -> Case:
        """The case to try the op on."""
        return Case(
            shape=self.shape or default_shape,
            dtype=getattr(torch, self.dtype),
            params=self.params,
            direction=OPS[self.op].direction,
        )


def study(request: Request, progress: Callable[[str], None]) -> Report:
    """The code of both sides.

    Raises:
        CompareError: It cannot be done.
    """
    op = OPS[request.op]
    case = request.case(TRIALS[op.name].large_shape)
    architecture = request.architecture or parse_architecture(DEFAULT_ARCHITECTURE)
    codes: dict[str, KernelCode | Skipped] = {}
    try:
        shown = choose(request, case, architecture)
    except (TypeError, ValueError, IndexError) as error:
        raise UsageError(str(error)) from error
    for side, choice in shown.items():
        progress(f"generating the code of {side}")
        codes[side] = inspect(side, choice.op, case, architecture, request)
    require_kernel(codes.values(), request.kernel)
    return Report(
        op=op.name,
        environment=environment.collect(),
        case=case,
        backends=rungs.SIDES,
        parity=dict.fromkeys((*rungs.SIDES, "torch"), _NOT_RUN),
        times=_NOT_RUN,
        codegen=codes,
        planned=_planned(shown["cuda"].op, case, architecture, request.kernel),
        shown=shown,
        gains=rung_times.recorded_gains(op, case),
    )


def _planned(
    op: Op, case: Case, architecture: Architecture, number: int
) -> dict[str, str]:
    """The kernel of CUDA, whose source can be read where it cannot be compiled."""
    launch = (op, launcher_arguments(op, case), architecture)
    try:
        titles = kernel_code.planned_kernels("cuda", *launch)
    except CodegenUnavailable:
        return {}
    return {"cuda": titles[number]} if number < len(titles) else {}


def choose(
    request: Request, case: Case, architecture: Architecture
) -> Mapping[Side, Shown]:
    """By side, the rung whose code is shown.

    Raises:
        UsageError: The rung that was asked for has no kernel for this call.
    """
    try:
        return rungs.choose(
            OPS[request.op],
            request.rung,
            lambda on_rung: launcher_arguments(on_rung, case),
            architecture,
        )
    except UnsupportedError as error:
        raise UsageError(f"--rung: {error}" if request.rung else str(error)) from error


def inspect(
    side: Side, op: Op, case: Case, architecture: Architecture, request: Request
) -> KernelCode | Skipped:
    """The code of one side, or why there is none.

    Raises:
        BuildFailedError: A compiler refuses the kernel.
    """
    launch, number = (op, launcher_arguments(op, case), architecture), request.kernel
    try:
        if side == "cuda":
            code = kernel_code.inspect_cuda(*launch, number=number)
        else:
            code = kernel_code.inspect_triton(
                *launch, number=number, same_ptxas=request.same_ptxas
            )
        return code.disassembled() if request.shows_sass else code
    except CodegenUnavailable as error:
        return Skipped(str(error))
    except CompilationFailed as error:
        raise BuildFailedError(f"{error}\n{error.log}") from error


def require_kernel(codes: Collection[KernelCode | Skipped], number: int) -> None:
    """Sees to it that the launch of this number, from 0 on, is there on one side.

    Raises:
        UsageError: It is on neither.
    """
    reasons = [each.reason for each in codes if isinstance(each, Skipped)]
    if number and len(reasons) == len(codes):
        raise UsageError(f"--kernel: {reasons[0]}")
