"""Tables below the code of a page, which may point into it.

A target is the fragment of a link: "line=csrc/softmax/softmax.cu:65", "section=load",
"category=fp math", "instructions=cuda:ptx:3,4,5", "finding=2". `fragment` writes one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from compare.code.kernel_code import Side
from compare.judge.cases import Case
from compare.records import store
from compare.report import recorded
from compare.report.tables import Cell, Grid
from compare.timing.names import NAMES
from compare.timing.times import Bench, CaseTimes


@dataclass(frozen=True)
class Panel:
    """A table below the code."""

    name: str  # the anchor
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""  # below the table
    has_numbers: bool = False  # in all columns but the first


@dataclass(frozen=True)
class Extras:
    """Parts of a page that need a simulation."""

    # By side, how often a thread executes each instruction of the PTX.
    executed: Mapping[Side, Sequence[float]] = field(default_factory=dict)
    panels: tuple[Panel, ...] = ()


def fragment(**what: object) -> str:
    """The target that pins what a keyword says: category="fp math"."""
    return urlencode(what, safe="/:,")


def recorded_times(bench: Bench, case: Case) -> Panel:
    """The times of every recorded shape, labelled as such."""
    title = f"Times recorded on {recorded.where(bench)}"
    if not (cases := recorded.fitting(bench, case)):
        note = f"None of {recorded.what(bench, case)} are on record."
        return Panel("times", title, (), (), note)
    names = recorded.timed_in(cases)
    versions = recorded.versions(bench, "torch", "triton", "nvcc", "commit")
    return Panel(
        name="times",
        title=title,
        header=("median µs", *(NAMES[name] for name in names)),
        rows=tuple(
            (
                Cell(each.case.shape_name),
                *(_time(each, name) for name in names),
            )
            for each in cases
        ),
        note=(
            f"Not measured here, but with {versions}: {recorded.file_of(bench)}. In"
            " brackets the share of the ceiling, the fastest that this GPU read and"
            " wrote as many bytes."
        ),
        has_numbers=True,
    )


def grid_panel(number: int, grid: Grid) -> Panel:
    """A table that only a user's own files have."""
    rows = tuple(tuple(map(Cell, row)) for row in grid.rows)
    return Panel(f"own-{number}", grid.name, grid.header, rows)


def _time(times: CaseTimes, name: str) -> Cell:
    timing = store.timing(times, name)
    share = f" ({timing.fraction:.0%})" if timing else ""
    return Cell(recorded.median(times, name) + share)
