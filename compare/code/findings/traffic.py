"""Rules about what crosses between threads and memory, and how well it is packed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from compare.code.findings.evidence import Sides, Statement, Subject, greater, in_order
from compare.code.words import amount, listed

if TYPE_CHECKING:  # its package needs numpy, which rules do not
    from compare.ptx_simulator import MemoryAccess

# By this ratio two sides differ, and one has more than it needs.
_NOTEWORTHY_RATIO = 1.1
# Up to this ratio nothing is wasted but at the ends of a tensor.
_ALMOST_NONE = 1.02


def _ratio(taken: int, fewest: int) -> float:
    return taken / fewest if fewest else 1.0


# ---- Global memory -------------------------------------------------------------------


def coalescing(sides: Sides) -> Statement | None:
    """Sectors of global memory that are touched, against the fewest that would do."""
    accesses = [each.accesses("global") or [] for each in sides]
    if not all(accesses):
        return None
    left, right = ratios = [
        _ratio(
            sum(each.sectors for each in found),
            sum(each.ideal_sectors for each in found),
        )
        for found in accesses
    ]
    if max(ratios) < _NOTEWORTHY_RATIO:
        return None
    wasteful = [
        [
            each
            for each in found
            if each.sectors > _NOTEWORTHY_RATIO * each.ideal_sectors
        ]
        for found in accesses
    ]
    whose = greater(left, right, ratio=_NOTEWORTHY_RATIO)
    touched = "times the sectors (32 bytes) of global memory"
    if whose is None:
        text = (
            f"Both touch {amount(max(ratios))} {touched} that they need:"
            f" {_most_sectors(wasteful[0] + wasteful[1])}"
        )
        return Statement(text, wasteful)
    user, other = in_order(whose, sides)
    most, rest = in_order(whose, ratios)
    others = "what" if rest < _ALMOST_NONE else f"{amount(rest)} times as many as"
    text = (
        f"{user.name} touches {amount(most)} {touched} that it needs:"
        f" {_most_sectors(in_order(whose, wasteful)[0])}. {other.name} touches"
        f" {others} it needs"
    )
    return Statement(text, wasteful, whose)


def _most_sectors(accesses: Sequence[MemoryAccess]) -> str:
    """The access that wastes most: `32 for a warp's load of x, where 16 ...`."""
    most = max(accesses, key=lambda each: each.sectors - each.ideal_sectors)
    return (
        f"{amount(most.sectors / most.requests)} for a warp's"
        f" {'store' if most.is_store else 'load'} of {most.argument or 'a tensor'},"
        f" where {amount(most.ideal_sectors / most.requests)} would hold as much"
    )


@dataclass(frozen=True)
class _Traffic:
    """Bytes for each element of the output; what is loaded by tensor."""

    loaded: Counter[str]
    stored: float

    @property
    def total(self) -> float:
        return sum(self.loaded.values()) + self.stored

    @property
    def parts(self) -> str:
        loaded = amount(sum(self.loaded.values()))
        return f"{loaded} loaded, {amount(self.stored)} stored"


def bytes_moved(sides: Sides) -> Statement | None:
    """Bytes that cross between threads and global memory, for each element."""
    accesses = [each.accesses("global") or [] for each in sides]
    if not all(accesses):
        return None
    left, right = moved = [
        _traffic(side, each) for side, each in zip(sides, accesses, strict=True)
    ]
    of = "bytes of global memory for each element of the output"
    whose = greater(left.total, right.total, ratio=_NOTEWORTHY_RATIO)
    if whose is None:
        text = f"Both move {amount(left.total)} {of}: {left.parts}"
        code = sides[0].code
        own = sum(each.bytes for each in code.launch.tensors) / code.elements
        if own / _ALMOST_NONE < left.total < own * _ALMOST_NONE:
            text += ", as many as the tensors have"
        elif left.total > own * _NOTEWORTHY_RATIO:
            text += f", where the tensors have {amount(own)}"
        return Statement(text, accesses)
    user, other = in_order(whose, sides)
    more, fewer = in_order(whose, moved)
    text = (
        f"{user.name} moves {amount(more.total)} {of} ({more.parts}), {other.name}"
        f" {amount(fewer.total)} ({fewer.parts})"
    )
    if often := _more_often(more, fewer):
        text += f": {user.name} loads {often} as often"
    return Statement(text, accesses, whose)


def _traffic(side: Subject, accesses: Sequence[MemoryAccess]) -> _Traffic:
    loaded: Counter[str] = Counter()
    for each in accesses:
        if not each.is_store:
            loaded[each.argument] += each.bytes
    elements = side.simulated_elements
    return _Traffic(
        Counter({name: number / elements for name, number in loaded.items()}),
        sum(each.bytes for each in accesses if each.is_store) / elements,
    )


def _more_often(mine: _Traffic, other: _Traffic) -> str:
    """`x 2 times and y 3 times`: the tensors of which one side loads more."""
    ratios = {
        name: loaded / other.loaded[name]
        for name, loaded in mine.loaded.items()
        if name and other.loaded[name]
    }
    return listed(
        f"{name} {amount(ratio)} times"
        for name, ratio in ratios.items()
        if ratio > _NOTEWORTHY_RATIO
    )


# ---- Shared memory -------------------------------------------------------------------


def bank_conflicts(sides: Sides) -> Statement | None:
    """Passes that the banks of shared memory need, against the fewest."""
    cuda, triton = (each.accesses("shared") for each in sides)
    if cuda is None or triton is None:
        return None
    left, right = map(_ratio_of_passes, (cuda, triton))
    if max(left, right) < _NOTEWORTHY_RATIO:
        return None
    found = [[each for each in side if each.bank_conflicts] for side in (cuda, triton)]
    whose = greater(left, right, ratio=_NOTEWORTHY_RATIO)
    do = "lanes of a warp ask for different words of one bank of shared memory"
    if whose is None:
        text = f"On both sides {do}: {_most_passes(found[0] + found[1])}"
        return Statement(text, found)
    user, other = in_order(whose, sides)
    more, fewer = in_order(whose, found)
    text = (
        f"In {user.name} {do}: {_most_passes(more)}. In {other.name} they"
        f" {'do so less' if fewer else 'never do'}"
    )
    return Statement(text, found, whose)


def _ratio_of_passes(accesses: Sequence[MemoryAccess]) -> float:
    passes = sum(each.wavefronts for each in accesses)
    return _ratio(passes, passes - sum(each.bank_conflicts for each in accesses))


def _most_passes(accesses: Sequence[MemoryAccess]) -> str:
    """The access with most conflicts: `a store takes 2 passes, where 1 would do`."""
    most = max(accesses, key=attrgetter("bank_conflicts"))
    fewest = most.wavefronts - most.bank_conflicts
    return (
        f"a {'store' if most.is_store else 'load'} takes"
        f" {amount(most.wavefronts / most.requests)} passes, where"
        f" {amount(fewest / most.requests)} would do"
    )
