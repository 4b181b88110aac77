"""Rules about single accesses to global memory: how wide they are, and why no wider."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from compare.assembly.classify import is_copy_to_global
from compare.assembly.listing import Instruction
from compare.code.findings.evidence import Sides, Statement, Subject, having, less
from compare.code.words import listed

if TYPE_CHECKING:  # its package needs numpy, which rules do not
    from compare.ptx_simulator import MemoryAccess

_STORE = "global store"
# In bytes: the accesses that every architecture has, of more than one byte.
_WIDTHS = (16, 8, 4, 2)

# Less than this part of what a side moves is not worth a word: the end of a tensor.
_NOTEWORTHY_PART = 0.05

# Over these no compiler moves an access.
_ORDERED = ("barrier", "mbarrier", "fence / wait", "atomic", "shuffle / vote")

_ByWidth = dict[int, list[Instruction]]
# Accesses of one thread, side by side, in the order of their addresses.
_Neighbours = tuple[Instruction, ...]
# By the distance in bytes from the first, which is the same in every thread.
_ByDistance = dict[int, Instruction]


# ---- Width ---------------------------------------------------------------------------


def vector_width(sides: Sides) -> Statement | None:
    """How many bytes a thread loads and stores by one instruction."""
    kinds = {
        "loads": [_by_width(each, "global load", "async copy") for each in sides],
        "stores": [_by_width(each, _STORE) for each in sides],
    }
    kinds = {verb: found for verb, found in kinds.items() if all(found)}
    if not kinds:
        return None
    by_widths: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for verb, found in kinds.items():
        by_widths[tuple(map(_widths, found))].append(verb)
    evidence = [
        [each for found in kinds.values() for each in _all(found[place])]
        for place in (0, 1)
    ]
    names = [
        f"{side.name}: {listed(dict.fromkeys(each.opcode for each in found))}"
        for side, found in zip(sides, evidence, strict=True)
    ]
    narrower = {less(max(left), max(right)) for left, right in kinds.values()} - {None}
    return Statement(
        f"{_compared_widths(by_widths, sides)} ({'; '.join(names)})",
        evidence,
        narrower.pop() if len(narrower) == 1 else None,
    )


def _compared_widths(
    by_widths: Mapping[tuple[str, ...], list[str]], sides: Sides
) -> str:
    """`A thread loads 16 bytes at a time in CUDA, 4 in Triton`, for each difference."""
    first, second = (each.name for each in sides)
    return "A thread " + "; it ".join(
        f"{listed(verbs)} {left} bytes at a time "
        + ("on both sides" if left == right else f"in {first}, {right} in {second}")
        for (left, right), verbs in by_widths.items()
    )


def _by_width(side: Subject, *categories: str) -> _ByWidth:
    """The accesses to global memory by width, without those that move next to nothing.

    Empty if there are some of which a thread's share is not known.
    """
    is_store = _STORE in categories
    found: _ByWidth = defaultdict(list)
    for each in side.ptx(*categories):
        found[each.access_bytes].append(each)
    by_boxes = any(
        is_copy_to_global(each.opcode) == is_store for each in side.ptx("tensor copy")
    )
    if 0 in found or by_boxes:
        return {}
    accesses = side.accesses("global")
    if accesses is None:
        return dict(found)
    moved: Counter[int] = Counter()
    for access in accesses:
        if access.is_store == is_store:
            moved[access.index] += access.bytes
    by_width = {
        width: sum(moved[instruction.index] for instruction in each)
        for width, each in found.items()
    }
    least = _NOTEWORTHY_PART * sum(by_width.values())
    return {width: each for width, each in found.items() if by_width[width] >= least}


def _widths(side: _ByWidth) -> str:
    return listed(map(str, sorted(side, reverse=True)))


def _all(side: _ByWidth) -> list[Instruction]:
    return [each for width in sorted(side, reverse=True) for each in side[width]]


# ---- Merging -------------------------------------------------------------------------


def merging(sides: Sides) -> Statement | None:
    """Neighbouring accesses of one thread that stayed apart, and why."""
    found = [
        [*_apart(each, "global load"), *_apart(each, "global store")] for each in sides
    ]
    parts = [
        f"{side.name} {_described(max(groups, key=_merged_bytes), side)}"
        for side, groups in zip(sides, found, strict=True)
        if groups
    ]
    evidence = [[each for group in groups for each in group] for groups in found]
    return Statement(". ".join(parts), evidence, having(*found)) if parts else None


def _described(accesses: _Neighbours, side: Subject) -> str:
    """`loads one by one what lies side by side: ...`."""
    verb = "loads" if "load" in accesses[0].category else "stores"
    text = (
        f"{verb} one by one what lies side by side: {len(accesses)} times"
        f" {accesses[0].opcode}, not {_merged_bytes(accesses)} bytes at once"
    )
    reason = _reason(accesses, side)
    return f"{text}, since {reason}" if reason else text


def _apart(side: Subject, category: str) -> list[_Neighbours]:
    """Groups of neighbours that together are wider than any access of the category."""
    by_width = _by_width(side, category)
    widest = max(by_width, default=_WIDTHS[0])
    known = _with_addresses(side)
    apart = [
        accesses
        for group in _groups(_all(by_width), known)
        for accesses in _mergeable(group, known, side)
        if _merged_bytes(accesses) > widest
    ]
    if apart:
        in_sass = side.code.sass.in_category(category)
        if any(each.access_bytes > widest for each in in_sass):
            return []  # the assembler has merged some
    return apart


def _merged_bytes(accesses: _Neighbours) -> int:
    """The width of the access that they could have been."""
    return sum(each.access_bytes for each in accesses)


def _with_addresses(side: Subject) -> dict[int, MemoryAccess]:
    """By instruction, the accesses of which each goes to one tensor."""
    found: dict[int, list[MemoryAccess]] = defaultdict(list)
    for each in side.code.simulation.accesses:
        found[each.index].append(each)
    return {
        index: each
        for index, (each, *others) in found.items()
        if each.first_addresses is not None and not others
    }


def _groups(
    instructions: Iterable[Instruction], known: Mapping[int, MemoryAccess]
) -> list[_ByDistance]:
    """The same accesses to one tensor, always as far apart.

    What goes where another went before is in a group of its own.
    """
    groups: list[_ByDistance] = []
    for each in instructions:
        if each.index not in known:
            continue
        for group in groups:
            distance = _distance(known[group[0].index], known[each.index])
            is_same = group[0].opcode == each.opcode
            if is_same and distance is not None and distance not in group:
                group[distance] = each
                break
        else:
            groups.append({0: each})
    return groups


def _distance(left: MemoryAccess, right: MemoryAccess) -> int | None:
    """How far apart two accesses are in every thread; None if that is no one number."""
    here, there = left.first_addresses, right.first_addresses
    if here is None or there is None or left.argument != right.argument:
        return None
    distances = (there - here)[(here >= 0) & (there >= 0)]
    is_one = len(distances) > 0 and (distances == distances[0]).all()
    return int(distances[0]) if is_one else None


def _mergeable(
    group: _ByDistance, known: Mapping[int, MemoryAccess], side: Subject
) -> list[_Neighbours]:
    """Those without a gap that could be one access each, as wide as possible.

    Wherever the first of them goes is a multiple of that width.
    """
    for merged in _WIDTHS:
        steps = range(0, merged, group[0].access_bytes)
        parts = [
            tuple(group[start + step] for step in steps)
            for start, first in sorted(group.items())
            if known[first.index].address_bits % merged == 0
            and all(start + step in group for step in steps)
        ]
        if parts := [each for each in parts if each[1:] and _may_merge(each, side)]:
            return parts
    return []


def _may_merge(accesses: _Neighbours, side: Subject) -> bool:
    """Whether nothing stands between accesses that they must not be moved over."""
    first, *_, last = sorted(each.index for each in accesses)
    between = side.code.ptx.instructions[first : last + 1]
    is_load = accesses[0].category == "global load"
    return not any(
        each.category in _ORDERED
        or (is_load and each.category == "global store")
        or side.ways.leads_back(each)
        for each in between
    )


def _reason(accesses: _Neighbours, side: Subject) -> str:
    """Why accesses that could be merged are not; empty if that is not certain."""
    conditions = {(each.predicate, side.ways.guard(each)) for each in accesses}
    blocks = {side.ways.block(each)[0].index for each in accesses}
    if len(conditions) == len(accesses):
        return "each has a condition of its own"
    if len(conditions) > 1 or len(blocks) > 1:
        return ""
    return (
        "nothing tells the compiler that their address is a multiple of"
        f" {_merged_bytes(accesses)}"
    )
