"""`compare study` on a terminal: two sources side by side, and views of their code."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console, Group
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from compare.code import who_does_what
from compare.code.kernel_code import Side
from compare.judge.parity import Skipped
from compare.report.code_views import show_diff, show_listings
from compare.report.comparison import CaseReport, Report
from compare.report.page.links import Kernel, find_kernel, main_file, read_source
from compare.report.tables import (
    codes_of,
    mix,
    moved,
    remarks,
    resources,
    traces,
    which_kernel,
)
from compare.report.terminal import (
    case_name,
    environment_line,
    show_grid,
)
from compare.report.text import plain, print_table
from compare.timing.names import NAMES

_LEXERS: dict[Side, str] = {"cuda": "cuda", "triton": "python"}
# What of a kernel stands before its first section: its parameters.
_SIGNATURE = "signature"


def show(report: Report, views: Sequence[str], console: Console) -> None:
    """Prints the views, or the two sources if there is none.

    Args:
        report: Of one case.
        views: Names, of compare.commands.study.VIEWS.
        console: Where to.
    """
    (case,) = report.cases
    targets = dict.fromkeys(each.arch for each in codes_of(case))
    what = (case_name(case.case), *(f"code for {each}" for each in targets))
    console.print(plain(f"{report.op}  ", "bold") + plain("  ".join(what)))
    console.print(plain(environment_line(report.environment), "dim"))
    if which := which_kernel(case):
        console.print(plain(which))
    for sentence in remarks(report.op, case):
        console.print(plain(sentence))
    for name, each in case.codegen.items():
        if isinstance(each, Skipped):
            note = f"no code of {NAMES[name]}: {each.reason}"
            console.print(plain(note, "yellow"))
    if not views:
        show_sources(report.op, _kernels(case), console)
    for view in views:
        console.print()
        if view == "trace":
            _show_trace(case, console)
        elif view == "memory":
            show_grid(moved(case), console)
        elif view == "who":
            _show_who(case, console)
        elif view == "mix":
            show_grid(resources(case), console)
            console.print()
            show_grid(mix(case), console)
        elif view == "diff":
            show_diff(report, console)
        elif view in ("ptx", "sass"):
            show_listings(report, "ptx" if view == "ptx" else "sass", console)


def _show_trace(case: CaseReport, console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    grid = traces(case)
    for header in grid.header[1:]:
        table.add_column(plain(header))
    for _, *cells in grid.rows:
        table.add_row(*map(plain, cells))
    print_table(console, table)
    for code in codes_of(case):
        if not code.simulation.is_exact:
            note = (
                f"{NAMES[code.side]}: some branches depend on data that is not known "
                "here, and are taken as not taken"
            )
            console.print(plain(note, "yellow"))


def _show_who(case: CaseReport, console: Console) -> None:
    codes = {each.side: each for each in codes_of(case)}
    if len(codes) < len(_LEXERS):
        console.print(plain("there is no code of both sides to show", "yellow"))
        return
    table = Table(box=None, pad_edge=False, header_style="bold", show_lines=True)
    for header in ("", NAMES["cuda"], NAMES["triton"]):
        table.add_column(plain(header))
    for row in who_does_what.table(codes["cuda"], codes["triton"]):
        answers = (plain(_answer(each)) for each in (row.cuda, row.triton))
        table.add_row(plain(row.topic), *answers)
    print_table(console, table)


def _answer(answer: who_does_what.Answer) -> str:
    where = f" ({', '.join(answer.places)})" if answer.places else ""
    return f"{answer.how}: {answer.what}{where}"


def _kernels(case: CaseReport) -> dict[Side, str]:
    """By side the name of its kernel, without the constants it was compiled for."""
    titles = {each.side: each.title for each in codes_of(case)}
    both: tuple[Side, Side] = ("cuda", "triton")
    return {
        side: re.split(r"[<\[]", title, maxsplit=1)[0]
        for side in both
        if (title := titles.get(side) or case.planned.get(side))
    }


def show_sources(op: str, kernels: dict[Side, str], console: Console) -> None:
    """Prints the kernel of each side, matched by section.

    Args:
        op: The name of the op.
        kernels: By side, the name of its kernel; those that are known.
        console: Where to.
    """
    files = {side: main_file(side, op, name) for side, name in kernels.items()}
    texts = {side: read_source(file) for side, file in files.items()}
    found = {side: find_kernel(side, texts[side], kernels[side]) for side in kernels}
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    width = (console.width - 2) // max(1, len(kernels))
    for side in kernels:
        header = plain(f"{NAMES[side]}: {files[side]}, {kernels[side]}")
        table.add_column(header, width=width, overflow="fold")
    for section in _sections(found):
        panes = [
            _pane(side, texts[side], found[side], section, width) for side in kernels
        ]
        table.add_row(*panes)
    console.print(table)


def _sections(found: dict[Side, Kernel | None]) -> Iterator[str]:
    """Of all kernels, in the order in which the first of them has them."""
    names = [_SIGNATURE]
    for kernel in found.values():
        names += kernel.sections if kernel else ()
    yield from dict.fromkeys(names)


def _pane(
    side: Side, text: str, kernel: Kernel | None, section: str, width: int
) -> Group | Text:
    lines = _lines_of(kernel, section)
    if lines is None:
        return plain("")
    source = text.splitlines()[lines.start - 1 : lines.stop - 1]
    while source and not source[-1].strip():
        source.pop()
    code = textwrap.dedent("\n".join(source))
    syntax = Syntax(
        code,
        _LEXERS[side],
        theme="ansi_dark",
        line_numbers=True,
        start_line=lines.start,
        word_wrap=True,
        code_width=width - 6,
        background_color="default",
    )
    return Group(syntax, Text(""))


def _lines_of(kernel: Kernel | None, section: str) -> range | None:
    if kernel is None:
        return None
    if section == _SIGNATURE:
        starts = [lines.start for lines in kernel.sections.values()]
        return range(kernel.lines.start, min(starts, default=kernel.lines.stop))
    return kernel.sections.get(section)
