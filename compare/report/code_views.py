"""Listings on a terminal: PTX and SASS of both sides, side by side or aligned."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from compare.assembly import diff
from compare.assembly.classify import Language
from compare.assembly.listing import Listing
from compare.assembly.normalize import normalize
from compare.assembly.sections import BACKGROUND
from compare.code.kernel_code import KernelCode
from compare.report.comparison import Report
from compare.report.text import plain

_DIFF_STYLES = {"same": "", "changed": "yellow", "left": "cyan", "right": "magenta"}
_LEGEND = (
    "|  on both sides, not alike or not as many    <  >  only here    x8  eight of them"
)


def show_diff(report: Report, console: Console) -> None:
    """The PTX of both sides, aligned by what the instructions do."""
    if len(report.codes) < 2:
        console.print(plain("there is no code of both sides to show", "yellow"))
        return
    cuda, triton = report.codes
    table = _side_by_side(report.codes, console, marked=True)
    for row in diff.align(cuda.ptx, triton.ptx):
        # Address arithmetic never matches, and it says little.
        is_background = row.category == BACKGROUND
        style = "dim" if is_background else _DIFF_STYLES[row.kind]
        marker = "" if is_background else row.marker
        table.add_row(plain(row.left, style), plain(marker), plain(row.right, style))
    console.print(plain("PTX, aligned by what the instructions do", "bold"))
    console.print(table)
    console.print(plain(_LEGEND, "dim"))


def show_listings(report: Report, language: Language, console: Console) -> None:
    """The whole code of each side that has some, with names made comparable."""
    if not report.codes:
        console.print(plain(f"there is no {language.upper()} to show", "yellow"))
        return
    table = _side_by_side(report.codes, console, marked=False)
    sides = (
        _lines(each.ptx if language == "ptx" else each.sass) for each in report.codes
    )
    for lines in itertools.zip_longest(*sides, fillvalue=""):
        table.add_row(*map(plain, lines))
    console.print(plain(language.upper(), "bold"))
    console.print(table)


def _side_by_side(codes: Sequence[KernelCode], console: Console, marked: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    width = max(1, (console.width - 4) // len(codes))
    for code in codes:
        header = plain(f"{code.name}: {code.title}")
        table.add_column(header, width=width, overflow="fold")
        if marked and code is codes[0]:
            table.add_column("", width=1)
    return table


def _lines(listing: Listing) -> Iterator[str]:
    for line in normalize(listing):
        yield from (f"{label}:" for label in line.labels)
        yield f"  {line.text}"
