"""Counts of instructions, by category and by section of the source."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from compare.assembly.listing import Listing
from compare.code.kernel_code import Side
from compare.report.page.listings import FAMILY_OF, times
from compare.report.page.panels import fragment
from compare.report.page.sides import SideView
from compare.report.tables import by_kind, name_of_kind
from compare.report.text import NONE


@dataclass(frozen=True)
class MixColumn:
    """A column of the table of instructions."""

    group: str  # "PTX", "executed" or "SASS"
    name: str  # the side's
    by_kind: Mapping[tuple[str, int], float]  # by category and by bytes for one thread
    by_section: Mapping[str, float]  # the empty one stands for none


@dataclass(frozen=True)
class MixRow:
    """A row of the table of instructions."""

    text: str
    target: str  # what a click on it pins; empty for nothing
    family: str  # of the category, which colours the row; empty for a section
    counts: tuple[str, ...]  # by column


def mix_columns(
    sides: Sequence[SideView], executed: Mapping[Side, Sequence[float]]
) -> list[MixColumn]:
    """The PTX of all sides, what is executed of it where that is known, their SASS."""
    codes = [(side, side.code) for side in sides if side.code]
    return [
        *(_column("PTX", side, code.ptx) for side, code in codes),
        *(
            _column("executed", side, code.ptx, executed[side.key])
            for side, code in codes
            if side.key in executed
        ),
        *(_column("SASS", side, code.sass) for side, code in codes),
    ]


def _column(
    group: str, side: SideView, listing: Listing, weights: Sequence[float] | None = None
) -> MixColumn:
    kinds: defaultdict[tuple[str, int], float] = defaultdict(float)
    sections: defaultdict[str, float] = defaultdict(float)
    weights = weights or [1.0] * len(listing.instructions)
    for each, weight in zip(listing.instructions, weights, strict=True):
        kinds[each.category, each.access_bytes] += weight
        sections[side.chains.of(each).section] += weight
    return MixColumn(group, side.name, kinds, sections)


def category_rows(columns: Sequence[MixColumn]) -> Iterator[MixRow]:
    """A row for each category and width, in the order of CATEGORIES."""
    rows = by_kind([column.by_kind for column in columns])
    n_widths = Counter(category for category, _ in rows)
    for (category, width), counts in rows.items():
        what = {"bytes": width} if width or n_widths[category] > 1 else {}
        yield MixRow(
            text=name_of_kind(category, width),
            target=fragment(category=category, **what),
            family=FAMILY_OF[category],
            counts=_cells(counts),
        )


def section_rows(columns: Sequence[MixColumn], sections: Iterable[str]) -> list[MixRow]:
    """A row for each section of the kernel, and one for what is in none."""

    def row(text: str, section: str) -> MixRow:
        counts = _cells(each.by_section.get(section, 0) for each in columns)
        return MixRow(text, section and fragment(section=section), "", counts)

    rows = [row(name, name) for name in sections]
    if any("" in each.by_section for each in columns):
        rows.append(row("in no section", ""))
    return rows


def _cells(counts: Iterable[float]) -> tuple[str, ...]:
    return tuple(times(each) if each else NONE for each in counts)
