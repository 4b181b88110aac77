"""An op's compiled code, of both compilers, under the checks of the PTX simulator.

For every kernel instance one small case. Races are found by what orders two accesses,
not by luck: so two orders of the warps are enough for them, in which asynchronous work
is done as late as the program allows.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable

from bindings.errors import BuildError, UnsupportedError
from bindings.op import Op, as_tuple
from bindings.registry import OPS
from compare.code import simulated_calls
from compare.code.architectures import DEFAULT_ARCHITECTURE, parse_architecture
from compare.code.kernel_code import Side, planned_kernels
from compare.code.words import LANGUAGE_NAMES
from compare.errors import BuildFailedError, CodegenUnavailable, SimulationFault
from compare.judge.cases import make_arguments
from compare.judge.sanitizer import (
    Finding,
    Report,
    Run,
    candidates,
    describe,
    distinct_runs,
    identity,
)

ORDERS = ("forward", "reverse")


def sanitize(name: str, side: Side, progress: Callable[[str], None]) -> Report:
    """Runs an op's compiled code, and tells `progress` what is going on.

    Raises:
        BuildFailedError: A kernel does not compile.
    """
    language = LANGUAGE_NAMES[side]
    progress(f"choosing cases for {language}")
    target = parse_architecture(DEFAULT_ARCHITECTURE).target
    report = Report(
        name,
        f"compiled for {target}, simulated",
        language=language,
        passes=ORDERS,
    )
    found: dict[str, Finding] = {}
    begin = time.perf_counter()
    try:
        chosen = _choose(OPS[name], side)
        report.kernels, report.runs = sorted(chosen), distinct_runs(chosen)
        for number, run in enumerate(report.runs):
            progress(f"{language}: case {number} of {len(report.runs)}")
            for order in ORDERS:
                if message := _run(side, run, order):
                    finding = Finding(message, f"{describe(run)}, order {order}")
                    found.setdefault(identity(message), finding).count += 1
    except (CodegenUnavailable, UnsupportedError) as error:
        report.missing = str(error)
    except BuildError as error:
        raise BuildFailedError(str(error)) from error
    report.seconds = time.perf_counter() - begin
    report.findings = list(found.values())
    return report


def _choose(op: Op, side: Side) -> dict[str, list[Run]]:
    """By kernel instance the smallest case that launches it, a call's ones first."""
    architecture = parse_architecture(DEFAULT_ARCHITECTURE)
    chosen: dict[str, list[Run]] = {}
    for rung in ("", *op.rungs):
        on_rung = op.on_rung(rung)
        for case, arguments in candidates(on_rung):
            with contextlib.suppress(UnsupportedError):  # no kernel of the rung's
                for title in planned_kernels(side, on_rung, arguments, architecture):
                    chosen.setdefault(title, [Run(on_rung, case)])
    return chosen


def _run(side: Side, run: Run, order: str) -> str:
    """Launches the op once, and returns the fault that was found; empty if none."""
    arguments = make_arguments(run.op, run.case)
    outputs = as_tuple(run.op.allocate(*arguments))
    for out in outputs:
        out.fill_(math.nan)
    launched = run.op.arguments(*outputs, *arguments)
    try:
        simulated_calls.run(
            side, run.op, launched, DEFAULT_ARCHITECTURE, unwritten=outputs, order=order
        )
    except UnsupportedError:
        raise  # an instruction that the simulator does not know is a fault of nobody
    except SimulationFault as error:
        return str(error).removeprefix(f"{run.op.name}: ")
    return ""
