"""Reports on a terminal."""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeGuard

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bindings.trials import TRIALS
from compare.code import memory
from compare.code.kernel_code import KernelCode
from compare.judge.cases import Case
from compare.judge.parity import Parity, Skipped
from compare.report import recorded
from compare.report.comparison import CaseReport, Report
from compare.report.tables import (
    NONE,
    Grid,
    codes_of,
    mix,
    remarks,
    which_kernel,
)
from compare.report.text import plain, print_table
from compare.timing import rates
from compare.timing.names import NAMES
from compare.timing.times import Bench, CaseTimes, Timing

_WIDTH = 100
_MOST_FINDINGS = 5  # unless all are asked for


def make_console() -> Console:
    """The console that reports go to: stdout, whose width a file or a pipe has not."""
    columns = os.environ.get("COLUMNS", "")
    is_sized = sys.stdout.isatty() or (columns.isdigit() and int(columns) > 0)
    return _Console(highlight=False, width=None if is_sized else _WIDTH)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leaves the exit code to the command line; rich's own answer is 1."""
        raise BrokenPipeError


def show(report: Report, console: Console, *, all_findings: bool = False) -> None:
    """The whole report, on one screen unless all findings are asked for."""
    for case in report.cases:
        _show_header(report, case, console)
        console.print()
        _show_figures(report, case, console)
        if isinstance(report.recorded, Skipped):
            _show_note(console, f"no recorded times: {report.recorded.reason}")
        elif report.recorded:
            console.print()
            dtype_name = str(case.case.dtype).removeprefix("torch.")
            recorded.show(report.recorded, dtype_name, case.case.params, console)
        if codes_of(case):
            console.print()
            show_grid(mix(case), console)
        if case.findings:
            console.print()
            _show_findings(case, console, None if all_findings else _MOST_FINDINGS)


def show_all(reports: list[Report], console: Console) -> None:
    """One row for each op, case and backend."""
    console.print(plain(environment_line(reports[0].environment), "dim"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("op")
    table.add_column("case")
    table.add_column("backend")
    cases = [(each, case) for each in reports for case in each.cases]
    are_timed = any(
        _is_timed(case.timing(backend))
        for _, case in cases
        for backend in case.backends
    )
    times_header = ("time", "GB/s") if are_timed else ()
    for name in ("parity", *times_header, "registers", "PTX", "SASS"):
        table.add_column(name, justify="right")
    for report, case in cases:
        for backend in case.backends:
            code, times = _code_of(case, backend), case.timing(backend)
            figures = [NONE, NONE]
            if _is_timed(times):
                figures = [f"{times.median_us:.2f} us", f"{times.gb_per_s:.0f}"]
            table.add_row(
                plain(report.op),
                plain(case_name(case.case)),
                plain(NAMES[backend]),
                _verdict(case, backend),
                *map(plain, figures if are_timed else ()),
                plain(code.registers if code else NONE),
                plain(code.ptx_mix.total if code else NONE),
                plain(code.sass_mix.total if code else NONE),
            )
    print_table(console, table)
    notes: dict[str, list[str]] = {}
    for report in reports:
        for note in itertools.chain.from_iterable(map(_notes, report.cases)):
            notes.setdefault(note, []).append(report.op)
    for note, ops in notes.items():
        is_general = len(ops) == len(reports)
        _show_note(console, note if is_general else f"{_joined(ops)}: {note}")


def _show_header(report: Report, case: CaseReport, console: Console) -> None:
    target = "".join(f"  code for {each.arch}" for each in codes_of(case)[:1])
    name = plain(f"{report.op}  ", "bold")
    kernel = f"  {which}" if (which := which_kernel(case)) else ""
    console.print(
        Text.assemble(name, plain(case_name(case.case)), plain(target), plain(kernel))
    )
    console.print(plain(environment_line(report.environment), "dim"))


def environment_line(environment: Mapping[str, Any]) -> str:
    """Versions and devices that figures depend on."""
    parts = [
        f"{name} {environment[name]}"
        for name in ("python", "torch", "triton", "nvcc", "driver")
        if environment[name]
    ]
    parts += environment["gpus"] or ["no GPU"]
    return " · ".join(parts)


def _show_figures(report: Report, case: CaseReport, console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    names = (*case.backends, "torch")
    for name in names:
        table.add_column(NAMES[name], justify="right")

    def row(name: str, cells: Iterable[Text]) -> None:
        table.add_row(plain(name), *cells)

    row("ran on", (plain(_ran_on(case.parity[name])) for name in names))
    row("parity with float64", (_verdict(case, name) for name in names))
    row("max error, relative to row", (plain(_error(case, name)) for name in names))
    row("  at most", (plain(_allowed(case, name)) for name in names))
    times = [case.timing(name) for name in names]
    if any(map(_is_timed, times)):
        row("median us", (plain(_figure(each, _median_us)) for each in times))
        row("  20 % to 80 %", (plain(_spread(each)) for each in times))
        row("  host us", (plain(_figure(each, _host_us)) for each in times))
        if TRIALS[report.op].flops and not isinstance(case.times, Skipped):
            tflops = partial(_tflops, report.op, case.times)
            row("TFLOP/s", (plain(_figure(each, tflops)) for each in times))
        row("GB/s", (plain(_figure(each, _gb_per_s)) for each in times))
        row("  of the ceiling", (plain(_share(each)) for each in times))
    codes = [_code_of(case, name) for name in case.backends]
    if any(codes):
        for name, cell in (
            ("registers / spilled bytes", "{0.registers} / {0.spill_bytes}"),
            ("shared memory, bytes", "{0.shared_bytes}"),
            (
                "blocks x threads, occupancy",
                "{0.blocks} x {0.threads_per_block}, {0.occupancy.fraction:.0%}",
            ),
            (
                "PTX / SASS / executed",
                "{0.ptx_mix.total} / {0.sass_mix.total} / "
                "{0.simulation.executed_per_thread:.0f}",
            ),
        ):
            cells = (plain(cell.format(each) if each else NONE) for each in codes)
            row(name, (*cells, plain("")))
        row(
            "bytes / sectors of fewest",
            (*(map(plain, _moved(codes, report, case))), plain("")),
        )
    print_table(console, table)
    for sentence in remarks(report.op, case):
        console.print(Padding(plain(sentence), (0, 0, 0, 2)))
    for note in _notes(case):
        is_made_up_for = isinstance(report.recorded, Bench) and note == _no_times(case)
        if not is_made_up_for:
            _show_note(console, note)


def _no_times(case: CaseReport) -> str:
    return case.times.reason if isinstance(case.times, Skipped) else ""


def _moved(
    codes: list[KernelCode | None], report: Report, case: CaseReport
) -> Iterator[str]:
    """Bytes moved to those that the op has to move, and sectors to the fewest."""
    traffic = TRIALS[report.op].traffic(case.case.shape, case.case.dtype.itemsize)
    for code in codes:
        if code is None:
            yield NONE
            continue
        totals, simulation = memory.totals(code.simulation), code.simulation
        if not totals.fewest_sectors:  # all addresses are unknown
            yield NONE
            continue
        fewest = traffic.total_bytes * simulation.blocks / simulation.total_blocks
        bytes_share = totals.global_bytes / fewest
        yield f"{bytes_share:.2f} / {totals.sectors / totals.fewest_sectors:.2f}"


def _notes(case: CaseReport) -> Iterator[str]:
    """What failed, what the code should not be like, what was skipped, and why."""
    names = [*case.backends, "torch"]
    for name in case.backends:
        parity = case.parity[name]
        if isinstance(parity, Parity) and not parity.passed:
            verb = "is wrong" if parity.is_finished else "did not finish"
            yield f"{NAMES[name]} {verb}: {parity.problem}"
    for violation in case.violations:
        yield f"the op's contract on code is broken: {violation}"
    for what, results in (
        ("parity", case.parity),
        ("time", {name: case.timing(name) for name in names}),
        ("code", case.codegen),
    ):
        skipped: dict[str, list[str]] = {}
        for name in names:
            if isinstance(each := results.get(name), Skipped):
                skipped.setdefault(each.reason, []).append(NAMES[name])
        for reason, who in skipped.items():
            # What holds for all, such as that times need a GPU, speaks for itself.
            is_general = len(who) == len(names)
            yield reason if is_general else f"no {what} of {_joined(who)}: {reason}"


def _joined(words: list[str]) -> str:
    return " and ".join(words)


def _show_note(console: Console, text: str) -> None:
    console.print(Padding(plain(text, "yellow"), (0, 0, 0, 2)))


def show_grid(grid: Grid, console: Console) -> None:
    """Prints a table whose first column is text and whose others are numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    first, *others = grid.header
    table.add_column(plain(first))
    for header in others:
        table.add_column(plain(header), justify="right")
    for name, *cells in grid.rows:
        styled = (plain(cell, "dim" if cell == NONE else "") for cell in cells)
        table.add_row(plain(name), *styled)
    print_table(console, table)


def _show_findings(case: CaseReport, console: Console, most: int | None) -> None:
    """What stands out, then what does not; at most so many, two of them alike."""
    differing = [each for each in case.findings if each.side]
    alike = [each for each in case.findings if not each.side]
    if most is not None:
        del differing[most - min(len(alike), 2) :]
        del alike[most - len(differing) :]
    for title, findings in (("What differs", differing), ("What is alike", alike)):
        if not findings:
            continue
        console.print(plain(title, "bold"))
        table = Table.grid(padding=(0, 2, 0, 0))
        for finding in findings:
            table.add_row(plain(finding.topic, "cyan"), plain(finding.text))
        console.print(table)
    hint = "--diff, --ptx and --sass show the code"
    if n_more := len(case.findings) - len(differing) - len(alike):
        hint = f"{n_more} more with --all-findings; {hint}"
    console.print(plain(hint, "dim"))


def _code_of(case: CaseReport, backend: str) -> KernelCode | None:
    # Both ways of building the CUDA side compile the same sources.
    code = case.codegen.get("cuda" if backend == "cuda_inline" else backend)
    return code if isinstance(code, KernelCode) else None


def case_name(case: Case) -> str:
    """Shape, dtype, layout and parameters."""
    parts = [
        "x".join(map(str, case.shape)),
        str(case.dtype).removeprefix("torch."),
        case.layout,
        *(f"{name}={value}" for name, value in case.params.items()),
    ]
    return " ".join(parts)


def _ran_on(parity: Parity | Skipped) -> str:
    return parity.ran_on if isinstance(parity, Parity) else NONE


def _verdict(case: CaseReport, backend: str) -> Text:
    parity = case.parity[backend]
    if isinstance(parity, Skipped):
        return plain("skipped", "yellow")
    if backend == "torch":
        return plain("")
    if not parity.is_finished:
        return plain("NOT FINISHED", "bold red")
    return plain("passed", "green") if parity.passed else plain("FAILED", "bold red")


def _error(case: CaseReport, backend: str) -> str:
    parity = case.parity[backend]
    if isinstance(parity, Skipped) or math.isnan(parity.error.max):
        return NONE
    return f"{parity.error.max:.2e}"


def _allowed(case: CaseReport, backend: str) -> str:
    parity = case.parity[backend]
    if backend == "torch":
        return ""
    if isinstance(parity, Skipped) or math.isnan(parity.allowed.max):
        return NONE
    return f"{parity.allowed.max:.2e}"


def _is_timed(timing: Timing | Skipped) -> TypeGuard[Timing]:
    return isinstance(timing, Timing)


def _median_us(timing: Timing) -> float:
    return timing.median_us


def _host_us(timing: Timing) -> float:
    return timing.host_us


def _gb_per_s(timing: Timing) -> float:
    return timing.gb_per_s


def _tflops(op: str, times: CaseTimes, timing: Timing) -> float:
    return rates.tflops(op, times, timing) or 0.0


def _figure(timing: Timing | Skipped, of: Callable[[Timing], float]) -> str:
    return f"{of(timing):,.2f}" if _is_timed(timing) else NONE


def _spread(timing: Timing | Skipped) -> str:
    if not _is_timed(timing):
        return NONE
    return f"{timing.p20_us:,.2f} to {timing.p80_us:,.2f}"


def _share(timing: Timing | Skipped) -> str:
    return f"{100 * timing.fraction:.1f} %" if _is_timed(timing) else NONE
