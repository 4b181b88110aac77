"""Text for rich, made safe."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from compare.printable import printable


def plain(value: object, style: str = "") -> Text:
    """The value in one style, without rich taking brackets in it for markup."""
    return Text(printable(value), style)


def print_table(console: Console, table: Table) -> None:
    """Prints a table of figures and names, none of which is broken inside a word.

    Lines become longer than a console that is too narrow: a terminal breaks them, where
    it can be made wider, and a number of which half stands below is none.
    """
    for column in table.columns:
        cells = (column.header, *column.cells)
        words = (word for cell in cells for word in str(cell).split())
        column.overflow = "fold"
        column.min_width = max(map(len, words), default=0)
    console.print(table, crop=False, overflow="ignore")
