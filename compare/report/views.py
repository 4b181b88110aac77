"""`compare study` on a terminal: two sources side by side, and views of their code."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.console import Console, Group
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from compare.code import who_does_what
from compare.code.kernel_code import Side
from compare.judge.parity import Skipped
from compare.report.code_views import show_diff, show_listings
from compare.report.comparison import Report
from compare.report.page.links import Kernel, kernel_of, source_of
from compare.report.tables import mix, moved, remarks, resources, traces, which_kernel
from compare.report.terminal import environment_line, show_grid
from compare.report.text import plain, print_head, print_rows

_LEXERS: dict[Side, str] = {"cuda": "cuda", "triton": "python"}
# The lines of a kernel before its first section, which are its parameters.
_SIGNATURE = "signature"


def show(report: Report, views: Sequence[str], console: Console) -> None:
    """Prints these of compare.commands.study.VIEWS, or the two sources."""
    code = "".join(f"  code for {each.arch}" for each in report.codes[:1])
    print_head(console, report.op, report.what + code)
    console.print(plain(environment_line(report.environment), "dim"))
    if which := which_kernel(report):
        console.print(plain(which))
    for sentence in remarks(report):
        console.print(plain(sentence))
    for name, each in report.codegen.items():
        if isinstance(each, Skipped):
            note = f"no code of {report.called(name)}: {each.reason}"
            console.print(plain(note, "yellow"))
    if not views:
        _show_sources(report, console)
    for view in views:
        console.print()
        if view == "trace":
            _show_trace(report, console)
        elif view == "memory":
            show_grid(moved(report), console)
        elif view == "who":
            _show_who(report, console)
        elif view == "mix":
            show_grid(resources(report), console)
            console.print()
            show_grid(mix(report), console)
        elif view == "diff":
            show_diff(report, console)
        elif view in ("ptx", "sass"):
            show_listings(report, "ptx" if view == "ptx" else "sass", console)


def _show_trace(report: Report, console: Console) -> None:
    grid = traces(report)
    rows = (cells[1:] for cells in grid.rows)
    print_rows(console, grid.header[1:], rows, n_words=2)
    for code in report.codes:
        if not code.simulation.is_exact:
            note = (
                f"{code.name}: some branches depend on data that is not known "
                "here, and are taken as not taken"
            )
            console.print(plain(note, "yellow"))


def _show_who(report: Report, console: Console) -> None:
    if len(report.codes) < 2:
        console.print(plain("there is no code of both sides to show", "yellow"))
        return
    rows = [
        (row.topic, _answer(row.cuda), _answer(row.triton))
        for row in who_does_what.table(*report.codes)
    ]
    if not rows:
        text = "both are in one language, where the same things are done by hand"
        console.print(plain(text, "yellow"))
        return
    header = ("", *(each.name for each in report.codes))
    print_rows(console, header, rows, n_words=3, show_lines=True)


def _answer(answer: who_does_what.Answer) -> str:
    where = f" ({', '.join(answer.places)})" if answer.places else ""
    return f"{answer.how}: {answer.what}{where}"


def _show_sources(report: Report, console: Console) -> None:
    """Prints the kernel of each side that is known, matched by section.

    Of own files whose kernel is not found, the whole file.
    """
    names = report.kernels
    sides = report.own.files if report.own else names
    kernels = {side: kernel_of(report, side, names.get(side, "")) for side in sides}
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    width = (console.width - 2) // max(1, len(kernels))
    for side, kernel in kernels.items():
        header = f"{report.called(side)}: {kernel.file}"
        if report.called(side) == kernel.file:
            header = kernel.file
        if side in names:
            header += f", {names[side]}"
        table.add_column(plain(header), width=width, overflow="fold")
    # In the order in which the first of the kernels has them.
    sections = dict.fromkeys(name for e in kernels.values() for name in e.sections)
    for section in (_SIGNATURE, *sections):
        panes = (_pane(report, side, e, section, width) for side, e in kernels.items())
        table.add_row(*panes)
    console.print(table)


def _pane(
    report: Report, side: Side, kernel: Kernel, section: str, width: int
) -> Group | Text:
    starts = [lines.start for lines in kernel.sections.values()]
    signature = range(kernel.lines.start, min(starts, default=kernel.lines.stop))
    lines = {_SIGNATURE: signature, **kernel.sections}.get(section)
    if lines is None:
        return plain("")
    text = source_of(report, kernel.file)
    source = text.splitlines()[lines.start - 1 : lines.stop - 1]
    syntax = Syntax(
        textwrap.dedent("\n".join(source).rstrip()),
        _LEXERS[report.own.languages[side] if report.own else side],
        theme="ansi_dark",
        line_numbers=True,
        start_line=lines.start,
        word_wrap=True,
        code_width=width - 6,
        background_color="default",
    )
    return Group(syntax, Text(""))
