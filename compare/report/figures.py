"""How the implementations of a report did, for a terminal and for pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from bindings.trials import TRIALS
from compare.code import memory
from compare.code.kernel_code import KernelCode
from compare.judge.parity import Parity, Skipped
from compare.report.comparison import NOT_ASKED_FOR, Report
from compare.report.tables import Cell
from compare.report.text import NONE
from compare.timing import rates
from compare.timing.times import Timing

_Known = TypeVar("_Known")

_OF_CODE = (
    ("registers / spilled bytes", "{0.registers} / {0.spill_bytes}"),
    ("shared memory, bytes", "{0.shared_bytes}"),
    (
        "blocks x threads, occupancy",
        "{0.launch.blocks} x {0.launch.threads_per_block}, {0.occupancy.fraction:.0%}",
    ),
    (
        "PTX / SASS / executed",
        "{0.ptx_mix.total} / {0.sass_mix.total} / {0.simulation.executed_words}",
    ),
)


def figures(report: Report) -> list[tuple[str, list[Cell]]]:
    """A row for each figure that is known, indented where it belongs to that above."""
    return [
        *_of_parity(report),
        *_of_checks(report),
        *_of_time(report),
        *_of_code(report),
    ]


def verdicts(report: Report) -> list[tuple[str, list[Cell]]]:
    """The rows of `figures` that say whether the results are right, and why not."""
    return [*_of_parity(report), *_of_checks(report)]


def _of_parity(report: Report) -> Iterator[tuple[str, list[Cell]]]:
    tried = [report.parity[name] for name in report.implementations]
    if all(isinstance(each, Skipped) for each in tried):
        return
    yield "ran on", _cells(tried, lambda each: each.ran_on)
    yield report.parity_row, [verdict(report, e) for e in report.implementations]
    if report.own and not any(_is_measured(each) for each in tried):
        return  # a program's own main says whether it is right
    yield "max error, relative to row", _cells(tried, lambda e: _error(e.error.max))
    ours = [report.parity[name] for name in report.backends]
    allowed = _cells(ours, lambda each: _error(each.allowed.max))
    yield "  at most", [*allowed, *_of_torch(report)]


def _is_measured(parity: Parity | Skipped) -> bool:
    return isinstance(parity, Parity) and not math.isnan(parity.allowed.max)


def _of_torch(report: Report) -> list[Cell]:
    """The cell of PyTorch where it has nothing to say, if it has a column."""
    return [Cell("")] * (len(report.implementations) - len(report.backends))


def _of_checks(report: Report) -> Iterator[tuple[str, list[Cell]]]:
    for row in report.checks:
        cells = [checked(report, row, name) for name in report.backends]
        yield row, [*cells, *_of_torch(report)]


def checked(report: Report, row: str, implementation: str) -> Cell:
    """How an implementation did in a respect besides parity."""
    check = report.checks[row].get(implementation)
    return Cell(check.text, mood=check.mood) if check else Cell(NONE)


def verdict(report: Report, implementation: str) -> Cell:
    """Whether it passed; nothing of PyTorch, which is what the others are held to."""
    parity = report.parity[implementation]
    if isinstance(parity, Skipped):
        return Cell("skipped", mood="unsure")
    if implementation not in report.backends:
        return Cell("")
    if not parity.is_finished:
        return Cell("NOT FINISHED", mood="bad")
    return Cell("passed", mood="good") if parity.passed else Cell("FAILED", mood="bad")


def _error(error: float) -> str:
    return NONE if math.isnan(error) else f"{error:.2e}"


def _of_time(report: Report) -> Iterator[tuple[str, list[Cell]]]:
    timings = [report.timing(name) for name in report.implementations]
    if isinstance(report.times, Skipped) or not any(
        isinstance(each, Timing) for each in timings
    ):
        return
    times = report.times
    has_flops = not report.own and TRIALS[report.op].flops is not None

    def tflops(timing: Timing) -> str:
        return f"{rates.tflops(report.op, times, timing) or 0.0:,.2f}"

    yield "median us", _cells(timings, lambda each: f"{each.median_us:,.2f}")
    yield (
        "  20 % to 80 %",
        _cells(timings, lambda e: f"{e.p20_us:,.2f} to {e.p80_us:,.2f}"),
    )
    yield "  host us", _cells(timings, lambda each: f"{each.host_us:,.2f}")
    if has_flops:
        yield "TFLOP/s", _cells(timings, tflops)
    yield "GB/s", _cells(timings, lambda each: f"{each.gb_per_s:,.2f}")
    yield "  of the ceiling", _cells(timings, lambda e: f"{100 * e.fraction:.1f} %")


def _of_code(report: Report) -> Iterator[tuple[str, list[Cell]]]:
    codes = [report.code_of(name) or Skipped("") for name in report.backends]
    if not report.codes:
        return
    for name, text in _OF_CODE:
        yield name, [*_cells(codes, text.format), *_of_torch(report)]
    moved = _cells(codes, lambda code: _moved(report, code))
    yield "bytes / sectors of fewest", [*moved, *_of_torch(report)]


def _moved(report: Report, code: KernelCode) -> str:
    """Bytes moved to those that the op has to move, and sectors to the fewest."""
    simulation, totals = code.simulation, memory.totals(code.simulation)
    if not totals.fewest_sectors:  # all addresses are unknown
        return NONE
    sectors = f"{totals.sectors / totals.fewest_sectors:.2f}"
    total = _fewest_bytes(report, code)
    if not total:
        return f"{NONE} / {sectors}"
    fewest = total * simulation.blocks / simulation.total_blocks
    return f"{totals.global_bytes / fewest:.2f} / {sectors}"


def _fewest_bytes(report: Report, code: KernelCode) -> int | None:
    """Bytes that a call has to move; None where they are not known of this kernel."""
    if report.own:
        # One kernel of several moves something else than the whole call.
        return report.own.traffic_bytes if len(code.kernels) == 1 else None
    assert report.case
    shape, width = report.case.shape, report.case.dtype.itemsize
    return TRIALS[report.op].traffic(shape, width).total_bytes


def _cells(
    results: Sequence[_Known | Skipped], text: Callable[[_Known], str]
) -> list[Cell]:
    return [Cell(NONE if isinstance(e, Skipped) else text(e)) for e in results]


def _notes_of_checks(report: Report) -> Iterator[str]:
    """Sentences on checks, but for what was said of parity already."""
    for row, checks in report.checks.items():
        for name, check in checks.items():
            parity = report.parity.get(name)
            said = parity.problem if isinstance(parity, Parity) else ""
            if (sentence := check.problem or check.note) and sentence != said:
                yield f"{report.called(name)}, {row}: {sentence}"


def notes(report: Report) -> Iterator[str]:
    """Sentences on failures, broken contracts, and skipped parts with their reasons."""
    names = report.implementations
    for name in report.backends:
        parity = report.parity[name]
        if isinstance(parity, Parity) and not parity.passed:
            verb = "is wrong" if parity.is_finished else "did not finish"
            yield f"{report.called(name)} {verb}: {parity.problem}"
    yield from _notes_of_checks(report)
    for violation in report.violations:
        yield f"the op's contract on code is broken: {violation}"
    for what, results in (
        ("parity", report.parity),
        ("time", {name: report.timing(name) for name in names}),
        ("code", report.codegen),
    ):
        skipped: dict[str, list[str]] = {}
        for name in names:
            if isinstance(each := results.get(name), Skipped) and each != NOT_ASKED_FOR:
                skipped.setdefault(each.reason, []).append(report.called(name))
        for reason, who in skipped.items():
            # A reason that holds for all, such as that times need a GPU, is enough; of
            # code it says what is missing, and not that there is no code.
            is_enough = len(who) == len(names) and what != "code"
            whose = f"no {what} of {' and '.join(who)}: "
            yield reason if is_enough else whose + reason
    if isinstance(report.recorded, Skipped):
        yield f"no recorded times: {report.recorded.reason}"
