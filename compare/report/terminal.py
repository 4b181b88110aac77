"""Reports on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table

from compare.judge.parity import Skipped
from compare.report import recorded
from compare.report.comparison import Report
from compare.report.figures import checked, figures, notes, verdict, verdicts
from compare.report.tables import Cell, Grid, mix, remarks, which_kernel
from compare.report.text import NONE, plain, print_head, print_note, print_rows
from compare.timing.times import Bench, Timing

_WIDTH = 100
_MOST_FINDINGS = 5  # unless all are asked for
_STYLES = {"good": "green", "bad": "bold red", "unsure": "yellow"}  # by mood


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
    code = "".join(f"  code for {each.arch}" for each in report.codes[:1])
    kernel = f"  {which}" if (which := which_kernel(report)) else ""
    print_head(console, report.op, report.what + code + kernel)
    console.print(plain(environment_line(report.environment), "dim"))
    console.print()
    _show_figures(report, console)
    if isinstance(report.recorded, Bench) and report.case:
        console.print()
        recorded.show(report.recorded, report.case, console)
    if report.codes:
        console.print()
        show_grid(mix(report), console)
    for grid in report.own.grids if report.own else ():
        console.print()
        console.print(plain(grid.name, "bold"))
        show_grid(grid, console)
    if report.findings:
        console.print()
        _show_findings(report, console, None if all_findings else _MOST_FINDINGS)


def show_all(reports: list[Report], console: Console) -> None:
    """One row for each op and backend."""
    console.print(plain(environment_line(reports[0].environment), "dim"))
    rows = [(report, backend) for report in reports for backend in report.backends]
    are_timed = any(isinstance(each.timing(name), Timing) for each, name in rows)
    header = (
        *("op", "case", "backend", "parity"),
        *(("time", "GB/s") if are_timed else ()),
        *("registers", "PTX", "SASS"),
    )
    cells = (
        (
            *(each.op, each.what, each.called(name)),
            _styled(verdict(each, name)),
            *(_time(each.timing(name)) if are_timed else ()),
            *_sizes(each, name),
        )
        for each, name in rows
    )
    print_rows(console, header, cells, n_words=3)
    _show_notes(reports, console)


def show_table(reports: list[Report], console: Console) -> None:
    """One row for each of a user's own files: parity, checks, times."""
    console.print(plain(environment_line(reports[0].environment), "dim"))
    rows = [(report, name) for report in reports for name in report.backends]
    checks = list(dict.fromkeys(row for report in reports for row in report.checks))
    are_timed = any(isinstance(each.timing(name), Timing) for each, name in rows)
    header = (
        "file",
        reports[0].parity_row,
        *checks,
        *(("time", "of torch") if are_timed else ()),
    )
    cells = (
        (
            each.called(name),
            _styled(verdict(each, name)),
            *(
                _styled(checked(each, row, name)) if row in each.checks else NONE
                for row in checks
            ),
            *(_against_torch(each, name) if are_timed else ()),
        )
        for each, name in rows
    )
    print_rows(console, header, cells)
    _show_notes(reports, console)


def _against_torch(report: Report, name: str) -> tuple[str, str]:
    """The time of an implementation, and that of PyTorch as a multiple of it."""
    timing, torch = report.timing(name), report.timing("torch")
    if isinstance(timing, Skipped):
        return NONE, NONE
    time = f"{timing.median_us:.2f} us"
    if isinstance(torch, Skipped):
        return time, NONE
    return time, f"{torch.median_us / timing.median_us:.2f}x"


def _show_notes(reports: list[Report], console: Console) -> None:
    """Prints the notes of several reports, each once."""
    said: dict[str, list[str]] = {}
    for report in reports:
        for note in dict.fromkeys(notes(report)):  # of parity and of code, say
            said.setdefault(note, []).append(report.op)
    for note, ops in said.items():
        is_general = len(ops) == len(reports)
        print_note(console, note if is_general else f"{' and '.join(ops)}: {note}")


def _time(timing: Timing | Skipped) -> tuple[str, str]:
    if isinstance(timing, Skipped):
        return NONE, NONE
    return f"{timing.median_us:.2f} us", f"{timing.gb_per_s:.0f}"


def _sizes(report: Report, backend: str) -> tuple[str, ...]:
    if (code := report.code_of(backend)) is None:
        return (NONE,) * 3
    return tuple(map(str, (code.registers, code.ptx_mix.total, code.sass_mix.total)))


def environment_line(environment: Mapping[str, Any]) -> str:
    """Versions and devices that figures depend on."""
    parts = [
        f"{name} {environment[name]}"
        for name in ("python", "torch", "triton", "nvcc", "driver")
        if environment[name]
    ]
    parts += environment["gpus"] or ["no GPU"]
    return " · ".join(parts)


def show_checks(report: Report, console: Console) -> None:
    """Whether the results are right, and what is wrong; nothing of times and code."""
    print_head(console, report.op, report.what)
    console.print(plain(environment_line(report.environment), "dim"))
    console.print()
    _print_cells(report, verdicts(report), console)
    for note in dict.fromkeys(notes(report)):
        print_note(console, note)


def _print_cells(
    report: Report, rows: list[tuple[str, list[Cell]]], console: Console
) -> None:
    header = ("", *map(report.called, report.implementations))
    styled = ((name, *map(_styled, cells)) for name, cells in rows)
    print_rows(console, header, styled)


def _show_figures(report: Report, console: Console) -> None:
    _print_cells(report, figures(report), console)
    for sentence in remarks(report):
        print_note(console, sentence, style="")
    for note in dict.fromkeys(notes(report)):
        is_made_up_for = isinstance(report.recorded, Bench) and (
            report.times == Skipped(note)
        )
        if not is_made_up_for:
            print_note(console, note)


def _styled(cell: Cell) -> RenderableType:
    return plain(cell.text, _STYLES[cell.mood]) if cell.mood else cell.text


def show_grid(grid: Grid, console: Console) -> None:
    """Prints a table of text."""
    print_rows(console, grid.header, grid.rows, n_words=grid.n_words)


def _show_findings(report: Report, console: Console, most: int | None) -> None:
    """Prints what differs, then what is alike; at most so many, two of them alike."""
    differing = [each for each in report.findings if each.side]
    alike = [each for each in report.findings if not each.side]
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
    if n_more := len(report.findings) - len(differing) - len(alike):
        hint = f"{n_more} more with --all-findings; {hint}"
    console.print(plain(hint, "dim"))
