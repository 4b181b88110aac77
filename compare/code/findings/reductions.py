"""The rule about how threads put their results together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compare.assembly.listing import Instruction
from compare.code.findings.evidence import Sides, Statement, Subject, greater
from compare.code.words import amount, counted, listed

if TYPE_CHECKING:  # importing the model imports torch and Triton
    from compare.code.kernel_code import Side

_EXCHANGE = r"^(?:shfl\.sync\.(?:bfly|down|up)|redux)"
# A value may go through these between an exchange and the store of a partial result.
_COMBINING = ("fp math", "integer / address", "compare / select", "move")
_MOST_STEPS = 4

# By this ratio one side does more of something than the other, and by so much more for
# each element that it matters to the whole.
_NOTEWORTHY_RATIO = 1.5
_NOTEWORTHY_EXCHANGES = 0.25
_NOTEWORTHY_BARRIERS = 0.1

_BARRIER = "barrier"


@dataclass(frozen=True)
class _Reduction:
    """How one side reduces."""

    way: str  # in which parts of the GPU
    steps: Mapping[str, Sequence[Instruction]]  # by what they do
    times: Mapping[str, float]  # that a warp executes them; if unknown, how many


def reduction(sides: Sides) -> Statement | None:
    """How threads put their results together."""
    left, right = map(_reduction, sides)
    if left is None or right is None or not any(map(_exchanges, sides)):
        return None
    cuda, triton = (_counts(each.times) for each in (left, right))
    mine, other = (f"{amount(each.elements_per_warp)} elements" for each in sides)
    evidence = [
        [each for group in side.steps.values() for each in group]
        for side in (left, right)
    ]
    if (left.way, cuda, mine) == (right.way, triton, other):
        return Statement(f"Both reduce a warp's {mine} {left.way}: {cuda}", evidence)
    what = "" if mine == other else f" its {other}"
    how = "likewise" if left.way == right.way else right.way
    first, second = (each.name for each in sides)
    text = (
        f"{first} reduces a warp's {mine} {left.way}: {cuda}."
        f" {second}{what} {how}: {triton}"
    )
    return Statement(text, evidence, _more_steps(sides, left, right))


def _reduction(side: Subject) -> _Reduction | None:
    """The reduction of a side, as far as it is certain; None if it is not."""
    exchanges = _exchanges(side)
    redux = [each for each in exchanges if each.opcode.startswith("redux")]
    shuffles = [each for each in exchanges if each not in redux]
    steps = {"shuffle": shuffles, "redux instruction": redux}
    by_memory = {
        _BARRIER: side.ptx("barrier"),
        "access to it": side.ptx("shared load", "shared store"),
    }
    # Shared memory may also hold tiles, of which a reduction knows nothing.
    has_tiles = side.ptx("tensor core", "async copy", "tensor copy")
    if exchanges and not any(by_memory.values()):
        way = "within the warp"
        steps |= by_memory
    elif not has_tiles and _stores_partial_results(side, exchanges):
        way = f"{'within the warp, then ' if exchanges else ''}through shared memory"
        steps |= by_memory
    elif exchanges:
        way = "by shuffles"
    else:
        return None
    executed = {name: side.per_warp(each) for name, each in steps.items()}
    times = {
        name: len(steps[name]) if number is None else number
        for name, number in executed.items()
    }
    return _Reduction(way, steps, times)


def _exchanges(side: Subject) -> list[Instruction]:
    return side.ptx("shuffle / vote", opcode=_EXCHANGE)


def _stores_partial_results(side: Subject, exchanges: Sequence[Instruction]) -> bool:
    """Whether what is stored to shared memory was combined from other threads' values.

    Or it comes from shared memory itself, if there are no exchanges within warps.
    """
    for store in side.ptx("shared store"):
        waiting = side.flow.origins(store, len(store.operands) - 1)
        for _ in range(_MOST_STEPS):
            if any(
                re.match(_EXCHANGE, each.opcode)
                or (not exchanges and each.category == "shared load")
                for each in waiting
            ):
                return True
            waiting = [
                source
                for each in waiting
                if each.category in _COMBINING
                for source in side.flow.sources(each)
            ]
    return False


def _counts(times: Mapping[str, float]) -> str:
    """`10 shuffles and no barriers`, by a warp."""
    return listed(
        counted(number, name)
        for name, number in times.items()
        if number or name == _BARRIER
    )


def _more_steps(sides: Sides, cuda: _Reduction, triton: _Reduction) -> Side | None:
    """The side that takes more of something for each element, and less of nothing."""
    more = set()
    for name in cuda.times.keys() & triton.times.keys():
        left, right = (
            each.times[name] / side.code.elements_per_thread
            for side, each in zip(sides, (cuda, triton), strict=True)
        )
        least = _NOTEWORTHY_BARRIERS if name == _BARRIER else _NOTEWORTHY_EXCHANGES
        more.add(greater(left, right, _NOTEWORTHY_RATIO, least))
    more.discard(None)
    return more.pop() if len(more) == 1 else None
