"""Figures of a case as plain tables, for a terminal, for markdown and for CSV."""

from __future__ import annotations

import csv
import io
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bindings.registry import OPS
from compare.assembly.classify import CATEGORIES
from compare.assembly.places import in_sources
from compare.code import rungs, trace
from compare.code.kernel_code import KernelCode
from compare.code.memory import Movement, movements, sampled_elements
from compare.report.comparison import Report
from compare.report.text import NONE
from compare.timing.names import NAMES

_ESCAPES = str.maketrans({"\\": r"\\", "|": r"\|"})  # in a cell of Markdown


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    target: str = ""  # what a click on it pins on a page; empty for nothing
    places: tuple[str, ...] = ()  # that it speaks of: "csrc/softmax/softmax.cu:69"
    is_code: bool = False  # set like code, with its blanks
    mood: str = ""  # "good", "bad" or "unsure", which colour it; or empty


@dataclass(frozen=True)
class Grid:
    """A table of text."""

    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # each with its name first
    n_words: int = 1  # how many columns, from the left, hold words


def which_kernel(report: Report) -> str:
    """Which of the kernels of a call this is; nothing where there is only one."""
    if report.own:
        return "; ".join(
            f"{code.name}: kernel {code.number + 1} of {len(code.kernels)},"
            f" {rungs.name_of(code.title)}"
            for code in report.codes
            if len(code.kernels) > 1
        )
    for code in report.codes:
        if len(code.kernels) > 1:
            # Both sides have the same name.
            name = rungs.name_of(code.title)
            return f"kernel {code.number + 1} of {len(code.kernels)}: {name}"
    return ""


def remarks(report: Report) -> list[str]:
    """What else is to be said of the kernels.

    Of an op: the kernels that a call takes in place of those shown, and why some are no
    twins.
    """
    if report.own:
        return [*report.notes]
    titles = [*(each.title for each in report.codes), *report.planned.values()]
    return [
        *rungs.sentences(report.shown, report.gains, NAMES),
        *rungs.reasons(OPS[report.op], titles),
    ]


_RESOURCES = {
    "kernel": "{0.title}",
    "compiler": "{0.compiler}",
    "architecture": "{0.arch}",
    "registers": "{0.registers}",
    "spilled bytes": "{0.spill_bytes}",
    "stack bytes": "{0.stack_bytes}",
    "static shared bytes": "{0.static_shared_bytes}",
    "dynamic shared bytes": "{0.launch.dynamic_shared_bytes}",
    "blocks": "{0.launch.blocks}",
    "threads per block": "{0.launch.threads_per_block}",
    "blocks on an SM": "{0.occupancy.blocks_per_sm}",
    "occupancy": "{0.occupancy.fraction:.0%}",
    "limited by": "{1}",
    "elements per thread": "{0.elements_per_thread:g}",
    "instructions a thread executes": "{0.simulation.executed_words}",
}


def resources(report: Report) -> Grid:
    """The resources that a launch of each side takes."""
    limits = [", ".join(each.occupancy.limited_by) for each in report.codes]
    rows = (
        (name, *map(text.format, report.codes, limits))
        for name, text in _RESOURCES.items()
    )
    header = ("", *(each.name for each in report.codes))
    return Grid("resources", header, tuple(rows))


def mix(report: Report) -> Grid:
    """Instructions of each side by what they are for, accesses by their width too."""
    codes = report.codes
    columns = {
        **{f"{code.name} PTX": code.ptx for code in codes},
        **{f"{code.name} SASS": code.sass for code in codes},
    }
    counts = (
        Counter((each.category, each.access_bytes) for each in listing.instructions)
        for listing in columns.values()
    )
    rows = tuple(
        (name_of_kind(*kind), *(str(each or NONE) for each in numbers))
        for kind, numbers in by_kind([*counts]).items()
    )
    return Grid("instructions", ("instructions", *columns), rows)


def by_kind(
    columns: Sequence[Mapping[tuple[str, int], float]],
) -> dict[tuple[str, int], list[float]]:
    """A row of counts for each category and number of bytes, the widest first."""
    kinds = {kind for each in columns for kind in each}
    order = sorted(kinds, key=lambda kind: (CATEGORIES.index(kind[0]), -kind[1]))
    return {kind: [each.get(kind, 0) for each in columns] for kind in order}


def name_of_kind(category: str, width: int) -> str:
    """Such as "global load, 16 bytes"; only the category of what moves no data."""
    return f"{category}, {width} bytes" if width else category


def moved(report: Report) -> Grid:
    """Loads and stores of each side for an element, by tensor."""
    rows = tuple(
        (
            name_of_movement(code, each),
            *movement_figures(report, code, each),
            ", ".join(place.rpartition("/")[2] for place in places_of(code, each)),
        )
        for code in report.codes
        for each in movements(code.simulation)
    )
    return Grid("memory", ("memory", *MOVEMENT_COLUMNS, "source"), rows)


def name_of_movement(code: KernelCode, movement: Movement) -> str:
    """Such as "CUDA: stores to out"."""
    verb = "stores to" if movement.is_store else "loads of"
    return f"{code.name}: {verb} {movement.argument or 'unknown addresses'}"


# Counts are for elements, because the two sides simulate different blocks.
MOVEMENT_COLUMNS = (
    "bytes a thread",
    "bytes an element",
    "requests of warps per 1,024 elements",
    "sectors per 1,024 elements",
    "of fewest",
    "bank conflicts per 1,024 elements",
)


def movement_figures(
    report: Report, code: KernelCode, movement: Movement
) -> tuple[str, ...]:
    """The cells of MOVEMENT_COLUMNS."""
    width = report.element_bytes
    n_elements = sampled_elements(code.simulation, code.launch, width)
    if not n_elements:
        return (movement.widths, *(NONE,) * (len(MOVEMENT_COLUMNS) - 1))
    ratio = movement.fewest_sectors and movement.sectors / movement.fewest_sectors
    conflicts = 1024 * movement.bank_conflicts / n_elements
    return (
        movement.widths,
        f"{movement.bytes / n_elements:.3f}",
        f"{1024 * movement.requests / n_elements:,.1f}",
        f"{1024 * movement.sectors / n_elements:,.1f}",
        f"{ratio:.2f}" if ratio else NONE,
        f"{conflicts:,.1f}" if movement.wavefronts else NONE,
    )


def places_of(code: KernelCode, movement: Movement) -> tuple[str, ...]:
    """The lines of the sources that a movement's instructions are from."""
    return in_sources(code.ptx.instructions[i] for i in movement.instructions)


def traces(report: Report) -> Grid:
    """The steps of each side's first warp, folded into loops."""
    codes = report.codes
    columns = [
        [step_of(row) for row in trace.rows_of(each.ptx, each.simulation.traces)]
        for each in codes
    ]
    header = ("", *(each.name for each in codes))
    lines = itertools.zip_longest(*columns, fillvalue="")
    rows = (("" if i else "a warp", *line) for i, line in enumerate(lines))
    return Grid("trace", header, tuple(rows))


def step_of(row: trace.Row) -> str:
    """A line of a folded trace."""
    indent = "  " * row.depth
    if row.is_loop:
        return f"{indent}{row.count} times:"
    times = f" x{row.count}" if row.count > 1 else ""
    return f"{indent}{row.text}{times}"


def to_markdown(grids: Sequence[Grid]) -> str:
    """The tables, one below the other."""
    return "\n".join(
        f"### {grid.name}\n\n{markdown(grid.header, 1, grid.rows)}\n" for grid in grids
    )


def markdown(head: Sequence[str], n_words: int, rows: Iterable[Sequence[str]]) -> str:
    """A table whose first columns are words, and the others figures."""
    rule = ["---"] * n_words + ["--:"] * (len(head) - n_words)
    table = ([cell.translate(_ESCAPES) for cell in row] for row in (head, rule, *rows))
    return "\n".join(f"| {' | '.join(row)} |" for row in table)


def to_csv(grids: Sequence[Grid]) -> str:
    """A line for each cell: table, row, column, value."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("table", "row", "column", "value"))
    for grid in grids:
        for name, *cells in grid.rows:
            for column, cell in zip(grid.header[1:], cells, strict=True):
                writer.writerow((grid.name, name, column, cell))
    return buffer.getvalue()
