"""Rules about what crosses between threads and memory, and how well it is packed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compare.code.findings.evidence import Statement, Subject, greater
from compare.code.findings.words import amount, listed

if TYPE_CHECKING:  # its package needs numpy, which rules do not
    from compare.ptx_simulator import MemoryAccess

# By this ratio two sides differ, and one has more than it needs.
_NOTEWORTHY_RATIO = 1.1
# Up to this ratio nothing is wasted but at the ends of a tensor.
_ALMOST_NONE = 1.02


# ---- Global memory -------------------------------------------------------------------


def coalescing(cuda: Subject, triton: Subject) -> Statement | None:
    """Sectors of global memory that are touched, against the fewest that would do."""
    sides = (cuda, triton)
    accesses = [each.accesses("global") or [] for each in sides]
    ratios = [_sector_ratio(each) for each in accesses]
    if not all(accesses) or max(ratios) < _NOTEWORTHY_RATIO:
        return None
    wasteful = [[each for each in found if _is_wasteful(each)] for found in accesses]
    evidence = [
        [side.instruction(each) for each in found]
        for side, found in zip(sides, wasteful, strict=True)
    ]
    whose = greater(ratios[0], ratios[1], ratio=_NOTEWORTHY_RATIO)
    touched = "times the sectors (32 bytes) of global memory"
    if whose is None:
        most = max([*wasteful[0], *wasteful[1]], key=_spare_sectors)
        text = (
            f"Both touch {amount(max(ratios))} {touched} that they need:"
            f" {_sectors_of(most)}"
        )
        return Statement(text, evidence)
    place = 0 if whose == "cuda" else 1
    most = max(wasteful[place], key=_spare_sectors)
    rest = ratios[1 - place]
    others = (
        "what it needs"
        if rest < _ALMOST_NONE
        else f"{amount(rest)} times as many as it needs"
    )
    text = (
        f"{sides[place].name} touches {amount(ratios[place])} {touched} that it"
        f" needs: {_sectors_of(most)}. {sides[1 - place].name} touches {others}"
    )
    return Statement(text, evidence, whose)


def _sectors_of(access: MemoryAccess) -> str:
    tensor = access.argument or "a tensor"
    return (
        f"{amount(access.sectors / access.requests)} for a warp's"
        f" {'store' if access.is_store else 'load'} of {tensor}, where"
        f" {amount(access.ideal_sectors / access.requests)} would hold as much"
    )


def _spare_sectors(access: MemoryAccess) -> int:
    return access.sectors - access.ideal_sectors


def _is_wasteful(access: MemoryAccess) -> bool:
    return access.sectors > _NOTEWORTHY_RATIO * access.ideal_sectors


def _sector_ratio(accesses: Sequence[MemoryAccess]) -> float:
    fewest = sum(each.ideal_sectors for each in accesses)
    return sum(each.sectors for each in accesses) / fewest if fewest else 1.0


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


def bytes_moved(cuda: Subject, triton: Subject) -> Statement | None:
    """Bytes that cross between threads and global memory, for each element."""
    sides = (cuda, triton)
    accesses = [each.accesses("global") or [] for each in sides]
    if not all(accesses):
        return None
    moved = [_traffic(side, each) for side, each in zip(sides, accesses, strict=True)]
    evidence = [
        [side.instruction(each) for each in found]
        for side, found in zip(sides, accesses, strict=True)
    ]
    of = "bytes of global memory for each element of the output"
    whose = greater(moved[0].total, moved[1].total, ratio=_NOTEWORTHY_RATIO)
    if whose is None:
        text = f"Both move {amount(moved[0].total)} {of}: {moved[0].parts}"
        own = _tensor_bytes(cuda)
        if own / _ALMOST_NONE < moved[0].total < own * _ALMOST_NONE:
            text += ", as many as the tensors have"
        elif moved[0].total > own * _NOTEWORTHY_RATIO:
            text += f", where the tensors have {amount(own)}"
        return Statement(text, evidence)
    place = 0 if whose == "cuda" else 1
    text = (
        f"{sides[place].name} moves {amount(moved[place].total)} {of}"
        f" ({moved[place].parts}), {sides[1 - place].name}"
        f" {amount(moved[1 - place].total)} ({moved[1 - place].parts})"
    )
    if often := _more_often(moved[place], moved[1 - place]):
        text += f": {sides[place].name} loads {often} as often"
    return Statement(text, evidence, whose)


def _tensor_bytes(side: Subject) -> float:
    """What the tensors have for each element of the output."""
    return sum(each.bytes for each in side.code.launch.tensors) / side.code.elements


def _traffic(side: Subject, accesses: Sequence[MemoryAccess]) -> _Traffic:
    assert side.simulation
    threads = side.simulation.blocks * side.simulation.threads
    elements = threads * side.code.elements_per_thread
    loaded: Counter[str] = Counter()
    for each in accesses:
        if not each.is_store:
            loaded[each.argument] += each.bytes
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
    parts = [
        f"{name} {amount(ratio)} times"
        for name, ratio in ratios.items()
        if ratio > _NOTEWORTHY_RATIO
    ]
    return listed(parts) if parts else ""


# ---- Shared memory -------------------------------------------------------------------


def bank_conflicts(cuda: Subject, triton: Subject) -> Statement | None:
    """Passes that the banks of shared memory need, against the fewest."""
    sides = (cuda, triton)
    accesses = [each.accesses("shared") for each in sides]
    if accesses[0] is None or accesses[1] is None:
        return None
    ratios = [_pass_ratio(each) for each in accesses if each is not None]
    if max(ratios) < _NOTEWORTHY_RATIO:
        return None
    found = [[each for each in side or () if each.bank_conflicts] for side in accesses]
    evidence = [
        [side.instruction(each) for each in conflicts]
        for side, conflicts in zip(sides, found, strict=True)
    ]
    whose = greater(ratios[0], ratios[1], ratio=_NOTEWORTHY_RATIO)
    do = "lanes of a warp ask for different words of one bank of shared memory"
    if whose is None:
        most = max([*found[0], *found[1]], key=_spare_passes)
        return Statement(f"On both sides {do}: {_passes_of(most)}", evidence)
    place = 0 if whose == "cuda" else 1
    most = max(found[place], key=_spare_passes)
    text = (
        f"In {sides[place].name} {do}: {_passes_of(most)}. In {sides[1 - place].name}"
        f" they {'do so less' if found[1 - place] else 'never do'}"
    )
    return Statement(text, evidence, whose)


def _passes_of(access: MemoryAccess) -> str:
    fewest = access.wavefronts - access.bank_conflicts
    return (
        f"a {'store' if access.is_store else 'load'} takes"
        f" {amount(access.wavefronts / access.requests)} passes, where"
        f" {amount(fewest / access.requests)} would do"
    )


def _spare_passes(access: MemoryAccess) -> int:
    return access.bank_conflicts


def _pass_ratio(accesses: Sequence[MemoryAccess]) -> float:
    taken = sum(each.wavefronts for each in accesses)
    fewest = taken - sum(each.bank_conflicts for each in accesses)
    return taken / fewest if fewest else 1.0
