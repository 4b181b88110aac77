"""Text and tables for rich, made safe."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from compare.printable import printable

NONE = "-"  # in a cell that has nothing to say


def plain(value: object, style: str = "") -> Text:
    """The value in one style, without rich taking brackets in it for markup."""
    return Text(printable(value), style)


def size_name(n_bytes: int) -> str:
    """Such as "1.5 KiB"."""
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if n_bytes >= 1 << exponent:
            return f"{n_bytes / (1 << exponent):,.4g} {unit}"
    return f"{n_bytes} B"


def print_head(console: Console, op: str, what: str) -> None:
    """Prints the first line of a report, which says what it is of."""
    console.print(plain(f"{op}  ", "bold") + plain(what))


def print_note(console: Console, text: str, style: str = "yellow") -> None:
    """Prints a sentence, indented below a table."""
    console.print(Padding(plain(text, style), (0, 0, 0, 2)))


def print_rows(
    console: Console,
    header: Iterable[str],
    rows: Iterable[Iterable[RenderableType]],
    *,
    n_words: int = 1,
    gap: int = 2,
    show_lines: bool = False,
) -> None:
    """Prints a table none of whose figures and names is broken inside a word.

    Lines become longer than a console that is too narrow: a terminal breaks them, where
    it can be made wider, and a number of which half stands below is none. The first
    `n_words` columns hold words, the others figures, with a gap of blanks between two.
    """
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, gap - gap // 2, 0, gap // 2),
        header_style="bold",
        show_lines=show_lines,
    )
    for number, each in enumerate(header):
        table.add_column(plain(each), justify="left" if number < n_words else "right")
    for row in rows:
        table.add_row(*(_cell(each) for each in row))
    for column in table.columns:
        cells = (column.header, *column.cells)
        words = (word for cell in cells for word in str(cell).split())
        column.overflow = "fold"
        column.min_width = max(map(len, words), default=0)
    console.print(table, crop=False, overflow="ignore")


def _cell(value: RenderableType) -> RenderableType:
    if isinstance(value, str):
        return plain(value, "dim" if value == NONE else "")
    return value
