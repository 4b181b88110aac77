"""A long sequence with repetitions, as nested loops that a reader takes in at a glance.

Whatever stands several times in a row becomes one loop over it, the shortest
repetitions first, until nothing repeats: 4,000 events of a matmul become 20 rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

_Event = TypeVar("_Event", bound=Hashable)

# No loop body of a kernel that somebody wants to read is longer.
_LONGEST_BODY = 512


@dataclass(frozen=True)
class Loop(Generic[_Event]):
    """A body that comes `count` times in a row."""

    count: int
    body: tuple[_Event | Loop[_Event], ...]


def fold(events: Sequence[_Event]) -> tuple[_Event | Loop[_Event], ...]:
    """The sequence with loops in place of what repeats."""
    nodes: list[_Event | Loop[_Event]] = []
    numbers: dict[_Event | Loop[_Event], int] = {}

    def number_of(node: _Event | Loop[_Event]) -> int:
        if node not in numbers:
            numbers[node] = len(nodes)
            nodes.append(node)
        return numbers[node]

    sequence = np.array([number_of(each) for each in events], dtype=np.int64)
    period = 1
    while period <= min(_LONGEST_BODY, len(sequence) // 2):
        runs = _repetitions(sequence, period)
        if not runs:
            period += 1
            continue
        # All of them at once: else the first step of a loop would be folded by itself
        # before the loops in the other steps are.
        parts: list[Sequence[int] | NDArray[np.int64]] = []
        done = 0
        for start, count in runs:
            body = tuple(nodes[i] for i in sequence[start : start + period])
            parts += [sequence[done:start], [number_of(_joined(count, body))]]
            done = start + count * period
        sequence = np.concatenate([*parts, sequence[done:]]).astype(np.int64)
        period = 1  # what was two is one now, and may repeat with its neighbours
    return tuple(nodes[i] for i in sequence)


def _repetitions(sequence: NDArray[np.int64], period: int) -> list[tuple[int, int]]:
    """Where something of this length comes again at once, and how many times."""
    is_equal = sequence[period:] == sequence[:-period]
    # The places where a run of equal pairs begins and ends.
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_equal, [False]])))
    found = []
    free_from = 0
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        begin = max(start, free_from)
        if end - begin >= period:
            count = (end - begin) // period + 1
            found.append((begin, count))
            free_from = begin + count * period
    return found


def _joined(count: int, body: tuple[_Event | Loop[_Event], ...]) -> Loop[_Event]:
    """A loop; one over nothing but a loop is that loop, more often."""
    if len(body) == 1 and isinstance(body[0], Loop):
        return Loop(count * body[0].count, body[0].body)
    return Loop(count, body)
