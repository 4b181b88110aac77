"""The rule about how threads put their results together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compare.assembly.listing import Instruction
from compare.code.findings.evidence import Statement, Subject, greater
from compare.code.findings.words import amount, counted, listed

if TYPE_CHECKING:  # importing the model imports torch and Triton
    from compare.code.kernel_code import Side

_EXCHANGE = re.compile(r"shfl\.sync\.(?:bfly|down|up)|redux")
# What a value may go through between an exchange and the store of a partial result.
_COMBINING = ("fp math", "integer / address", "compare / select", "move")
_MOST_STEPS = 4

# By this ratio one side does more of something than the other, and by so much more for
# each element that it matters to the whole.
_NOTEWORTHY_RATIO = 1.5
_NOTEWORTHY_EXCHANGES = 0.25
_NOTEWORTHY_BARRIERS = 0.1

_BARRIER, _SHARED = "barrier", "access to it"


@dataclass(frozen=True)
class _Reduction:
    """How one side reduces.

    Attributes:
        way: in which parts of the GPU.
        steps: the instructions, by what they do.
    """

    way: str
    steps: Mapping[str, Sequence[Instruction]]

    @property
    def instructions(self) -> list[Instruction]:
        """All of them."""
        return [each for group in self.steps.values() for each in group]


def reduction(cuda: Subject, triton: Subject) -> Statement | None:
    """How threads put their results together."""
    sides = (cuda, triton)
    left, right = _reduction(cuda), _reduction(triton)
    if left is None or right is None or not any(map(_exchanges, sides)):
        return None
    found = (left, right)
    counts = [_counts(side, each) for side, each in zip(sides, found, strict=True)]
    elements = [f"{amount(each.elements_per_warp)} elements" for each in sides]
    evidence = [each.instructions for each in found]
    if (left.way, counts[0], elements[0]) == (right.way, counts[1], elements[1]):
        text = f"Both reduce a warp's {elements[0]} {left.way}: {counts[0]}"
        return Statement(text, evidence)
    what = "" if elements[0] == elements[1] else f" its {elements[1]}"
    how = "likewise" if left.way == right.way else right.way
    text = (
        f"CUDA reduces a warp's {elements[0]} {left.way}: {counts[0]}."
        f" Triton{what} {how}: {counts[1]}"
    )
    return Statement(text, evidence, _more_steps(sides, found))


def _reduction(side: Subject) -> _Reduction | None:
    """What is certain about a side; None if nothing is."""
    exchanges = _exchanges(side)
    steps: dict[str, Sequence[Instruction]] = {
        "shuffle": [each for each in exchanges if each.opcode.startswith("shfl")],
        "redux instruction": [
            each for each in exchanges if each.opcode.startswith("redux")
        ],
    }
    barriers = side.ptx("barrier")
    shared = side.ptx("shared load", "shared store")
    everything = {**steps, _BARRIER: barriers, _SHARED: shared}
    if exchanges and not barriers and not shared:
        return _Reduction("within the warp", everything)
    # Shared memory may also hold tiles, of which a reduction knows nothing.
    if not side.ptx(
        "tensor core", "async copy", "tensor copy"
    ) and _stores_partial_results(side):
        start = "within the warp, then " if exchanges else ""
        return _Reduction(f"{start}through shared memory", everything)
    return _Reduction("by shuffles", steps) if exchanges else None


def _exchanges(side: Subject) -> list[Instruction]:
    return [each for each in side.ptx("shuffle / vote") if _EXCHANGE.match(each.opcode)]


def _stores_partial_results(side: Subject) -> bool:
    """Whether what is stored to shared memory was combined from other threads' values.

    Or it comes from shared memory itself, if there are no exchanges within warps.
    """
    has_exchanges = bool(_exchanges(side))
    for store in side.ptx("shared store"):
        waiting = side.flow.origins(store, len(store.operands) - 1)
        for _ in range(_MOST_STEPS):
            if any(
                _EXCHANGE.match(each.opcode)
                or (not has_exchanges and each.category == "shared load")
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


def _counts(side: Subject, found: _Reduction) -> str:
    """`10 shuffles and no barriers`, by a warp."""
    times = {name: _times(side, each) for name, each in found.steps.items()}
    return listed(
        counted(number, name)
        for name, number in times.items()
        if number or name == _BARRIER
    )


def _times(side: Subject, instructions: Sequence[Instruction]) -> float:
    """How often a warp executes them; where that is unknown, how many there are."""
    executed = side.per_warp(instructions)
    return len(instructions) if executed is None else executed


def _more_steps(sides: Sequence[Subject], found: Sequence[_Reduction]) -> Side | None:
    """The side that takes more of something for each element, and less of nothing."""
    more = set()
    for name in found[0].steps.keys() & found[1].steps.keys():
        left, right = (
            _times(side, each.steps[name]) / side.code.elements_per_thread
            for side, each in zip(sides, found, strict=True)
        )
        least = _NOTEWORTHY_BARRIERS if name == _BARRIER else _NOTEWORTHY_EXCHANGES
        more.add(greater(left, right, _NOTEWORTHY_RATIO, least))
    more.discard(None)
    return more.pop() if len(more) == 1 else None
