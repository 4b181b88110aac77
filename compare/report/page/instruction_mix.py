"""Counts of instructions, by category and by section of the source."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from compare.assembly.classify import CATEGORIES
from compare.assembly.listing import Instruction, Listing
from compare.code.kernel_code import Side
from compare.report.page.links import Chains
from compare.report.page.listings import FAMILY_OF, times
from compare.report.page.panels import fragment
from compare.report.page.sides import SideView
from compare.report.text import NONE

_Key = TypeVar("_Key")


@dataclass(frozen=True)
class MixColumn:
    """A column of the table of instructions.

    Attributes:
        group: "PTX", "executed" or "SASS".
        name: The side's.
        listing: Whose instructions it counts.
        chains: The side's.
        weights: The count of each instruction; by default 1.
    """

    group: str
    name: str
    listing: Listing
    chains: Chains
    weights: Sequence[float] | None = None

    def by_category(self) -> dict[tuple[str, int], float]:
        """Counts by category and by bytes for one thread."""
        return self._sum((each.category, each.access_bytes) for each in self._all)

    def by_section(self) -> dict[str, float]:
        """Counts by section; the empty one stands for none."""
        chains = self.chains
        return self._sum(chains.of(each).section for each in self._all)

    @property
    def _all(self) -> tuple[Instruction, ...]:
        return self.listing.instructions

    def _sum(self, keys: Iterable[_Key]) -> dict[_Key, float]:
        sums: dict[_Key, float] = {}
        weights = self.weights or itertools.repeat(1, len(self._all))
        for key, weight in zip(keys, weights, strict=True):
            sums[key] = sums.get(key, 0) + weight
        return sums


@dataclass(frozen=True)
class MixRow:
    """A row of the table of instructions.

    Attributes:
        text: Its heading.
        target: What a click on it pins; empty for nothing.
        family: Of the category, which colours the row; empty for a section.
        counts: By column.
    """

    text: str
    target: str
    family: str
    counts: tuple[str, ...]


def mix_columns(
    sides: Sequence[SideView], executed: Mapping[Side, Sequence[float]]
) -> list[MixColumn]:
    """The PTX of all sides, what is executed of it where that is known, their SASS."""
    codes = [(side, side.code) for side in sides if side.code]
    return [
        *(MixColumn("PTX", s.name, code.ptx, s.chains) for s, code in codes),
        *(
            MixColumn("executed", s.name, code.ptx, s.chains, executed[s.key])
            for s, code in codes
            if s.key in executed
        ),
        *(MixColumn("SASS", s.name, code.sass, s.chains) for s, code in codes),
    ]


def category_rows(columns: Sequence[MixColumn]) -> Iterator[MixRow]:
    """A row for each category and width, in the order of CATEGORIES."""
    counts = [column.by_category() for column in columns]
    keys = {key for each in counts for key in each}
    for category in CATEGORIES:
        widths = sorted((key[1] for key in keys if key[0] == category), reverse=True)
        for width in widths:
            is_all = widths == [0]
            yield MixRow(
                text=f"{category}, {width} bytes" if width else category,
                target=fragment(category=category)
                if is_all
                else fragment(category=category, bytes=width),
                family=FAMILY_OF[category],
                counts=_cells(each.get((category, width), 0) for each in counts),
            )


def section_rows(columns: Sequence[MixColumn], sections: Iterable[str]) -> list[MixRow]:
    """A row for each section of the kernel, and one for what is in none."""
    counts = [column.by_section() for column in columns]
    rows = [
        MixRow(
            text=name,
            target=fragment(section=name),
            family="",
            counts=_cells(each.get(name, 0) for each in counts),
        )
        for name in sections
    ]
    if any("" in each for each in counts):
        outside = _cells(each.get("", 0) for each in counts)
        rows.append(MixRow("in no section", "", "", outside))
    return rows


def _cells(counts: Iterable[float]) -> tuple[str, ...]:
    return tuple(times(each) if each else NONE for each in counts)
