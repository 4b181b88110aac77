"""Repetitions in a sequence, written once.

Compilers unroll: thirty-two loads stand in the code one after the other, or thirty-two
times the same four steps. Folding finds what repeats, shortest pattern first, so that
patterns of patterns are found too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

_MOST_STEPS = 32  # of a pattern


@dataclass(frozen=True)
class Step:
    """An event that occurs once in the pattern it is part of.

    Attributes:
        key: what makes two events count as the same.
        indices: all the places in the sequence where this step of the pattern stands.
    """

    key: str
    indices: tuple[int, ...]


@dataclass(frozen=True)
class Repeat:
    """A pattern that occurs several times in a row."""

    count: int
    pattern: tuple["Step | Repeat", ...]

    @property
    def key(self) -> str:
        """What makes two repetitions count as the same."""
        return f"{self.count}({';'.join(each.key for each in self.pattern)})"

    @property
    def indices(self) -> tuple[int, ...]:
        """All the places in the sequence that it stands for."""
        return tuple(index for each in self.pattern for index in each.indices)


Node = Step | Repeat


def fold(steps: Sequence[Node]) -> list[Node]:
    """Replaces each run of equal patterns by one `Repeat`."""
    nodes = list(steps)
    length = 1
    while length <= min(_MOST_STEPS, len(nodes) // 2):
        folded = _fold_patterns(nodes, length)
        # A shorter pattern may have come to repeat.
        length = 1 if len(folded) < len(nodes) and length > 1 else length + 1
        nodes = folded
    return nodes


def _fold_patterns(nodes: list[Node], length: int) -> list[Node]:
    keys = [each.key for each in nodes]
    folded: list[Node] = []
    start = 0
    while start < len(nodes):
        pattern = keys[start : start + length]
        stop = start + length
        while keys[stop : stop + length] == pattern:
            stop += length
        if stop == start + length:
            folded.append(nodes[start])
            start += 1
        else:
            folded.append(_repeat(nodes[start:stop], length))
            start = stop
    return folded


def _repeat(nodes: list[Node], length: int) -> Repeat:
    count = len(nodes) // length
    pattern = tuple(_merge(nodes[offset::length]) for offset in range(length))
    if length == 1 and isinstance(pattern[0], Repeat):
        return Repeat(count * pattern[0].count, pattern[0].pattern)
    return Repeat(count, pattern)


def _merge(equal: list[Node]) -> Node:
    """One node for several with the same key, which stands for all their places."""
    first = equal[0]
    if isinstance(first, Step):
        return Step(first.key, tuple(i for each in equal for i in each.indices))
    patterns = [each.pattern for each in equal if isinstance(each, Repeat)]
    merged = tuple(_merge(list(column)) for column in zip(*patterns, strict=True))
    return Repeat(first.count, merged)
