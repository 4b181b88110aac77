"""`compare study`: what the compilers make of an op, without running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from bindings.errors import UnsupportedError
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.code import kernel_code, rungs
from compare.code.architectures import Architecture
from compare.code.kernel_code import KernelCode, Side
from compare.errors import (
    BuildFailedError,
    CodegenUnavailable,
    CompilationFailed,
    UsageError,
)
from compare.judge.cases import Case, launcher_arguments
from compare.judge.parity import Skipped
from compare.records import rung_times
from compare.report.collect import require_kernel
from compare.report.comparison import CaseReport, Report
from compare.timing import environment

_NOT_RUN = Skipped("compare study runs nothing")


@dataclass(frozen=True)
class Request:
    """What to study.

    Attributes:
        op: The name of the op.
        shape: Of its inputs; by default the large one.
        dtype: Of its inputs, such as "float32".
        params: Its other arguments, by name.
        architecture: What to generate code for.
        same_ptxas: Whether nvcc's assembler makes the machine code of both sides.
        kernel: Of which launch to show the code, counted from 0.
        rung: Of which rung; by default the twin.
        shows_sass: Whether its machine code is of interest, which takes a second more.
    """

    op: str
    shape: tuple[int, ...] | None
    dtype: str
    params: Mapping[str, Any]
    architecture: Architecture
    same_ptxas: bool = False
    kernel: int = 0
    rung: str | None = None
    shows_sass: bool = False


def study(request: Request, progress: Callable[[str], None]) -> Report:
    """The code of both sides.

    Args:
        request: What to study.
        progress: Is told, from time to time, what is going on.

    Raises:
        CompareError: It cannot be done.
    """
    op = OPS[request.op]
    dtype = getattr(torch, request.dtype)
    case = Case(
        shape=request.shape or TRIALS[op.name].large_shape,
        dtype=dtype,
        params=request.params,
        direction=op.direction,
    )
    try:
        shown = rungs.choose(
            op,
            request.rung,
            lambda on_rung: launcher_arguments(on_rung, case),
            request.architecture,
        )
    except (TypeError, ValueError, IndexError, UnsupportedError) as error:
        raise UsageError(str(error)) from error
    codes, planned = _codes(request, case, shown, progress)
    require_kernel(codes, request.kernel)
    parity = dict.fromkeys(("cuda", "triton", "torch"), _NOT_RUN)
    report = CaseReport(
        case,
        ("cuda", "triton"),
        parity,
        _NOT_RUN,
        codes,
        findings=(),
        planned=planned,
        shown=shown,
        gains=rung_times.recorded_gains(op, case),
    )
    return Report(op.name, environment.collect(), (report,))


def _codes(
    request: Request,
    case: Case,
    shown: Mapping[Side, rungs.Shown],
    progress: Callable[[str], None],
) -> tuple[dict[str, KernelCode | Skipped], dict[str, str]]:
    """The code of both sides, and the kernel of CUDA also where it has none."""
    codes: dict[str, KernelCode | Skipped] = {}
    planned: dict[str, str] = {}
    for side, choice in shown.items():
        progress(f"generating the code of {side}")
        arguments = launcher_arguments(choice.op, case)
        try:
            if side == "cuda":
                launch = (choice.op, arguments, request.architecture)
                # Its source can be read where it cannot be compiled.
                titles = kernel_code.planned_kernels(side, *launch)
                if request.kernel < len(titles):
                    planned[side] = titles[request.kernel]
                code = kernel_code.inspect_cuda(*launch, number=request.kernel)
            else:
                code = kernel_code.inspect_triton(
                    choice.op,
                    arguments,
                    request.architecture,
                    number=request.kernel,
                    same_ptxas=request.same_ptxas,
                )
            codes[side] = code.disassembled() if request.shows_sass else code
        except CodegenUnavailable as error:
            codes[side] = Skipped(str(error))
        except CompilationFailed as error:
            raise BuildFailedError(f"{error}\n{error.log}") from error
    return codes, planned
