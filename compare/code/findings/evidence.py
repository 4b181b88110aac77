"""The two sides as rules see them, and the findings that rules make."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from compare.assembly.classify import Language
from compare.assembly.control_flow import find_loops
from compare.assembly.listing import Instruction
from compare.code.findings.dataflow import Dataflow
from compare.code.ways import Ways

if TYPE_CHECKING:  # importing the model imports torch and Triton
    from compare.code.kernel_code import KernelCode, Side
    from compare.ptx_simulator import MemoryAccess

_Item = TypeVar("_Item")

# These reach global memory in a way that no access of a thread shows.
_UNCOUNTED = re.compile(r"wmma\.(?:load|store)\.(?!.*\bshared)|cp\.reduce|red\.async")


@dataclass(frozen=True)
class Finding:
    """One difference, or one thing worth knowing that the sides have in common."""

    topic: str  # as that of its rule
    text: str  # the sentence
    language: Language  # of the listings that the evidence is in
    cuda: tuple[int, ...]  # indices of the instructions of the first side that prove it
    triton: tuple[int, ...]  # those of the second side
    rule: str  # its name, which does not change with the numbers
    # The one that does more or worse, or what the other does not; None if the sentence
    # is about both alike.
    side: Side | None
    weight: float  # the more telling it is, the greater; from 0 to 100


@dataclass(frozen=True)
class Statement:
    """A sentence of a rule, with its evidence."""

    text: str  # the sentence, without the full stop
    # The instructions that prove it, or their accesses, of the first and second side.
    evidence: Sequence[Iterable[Instruction | MemoryAccess]]
    side: Side | None = None  # as that of a finding
    language: Language = "ptx"  # of the instructions


@dataclass(frozen=True, eq=False)
class Subject:
    """One side, as rules see it."""

    code: KernelCode

    @property
    def side(self) -> Side:
        """Its place in the comparison."""
        return self.code.side

    @property
    def name(self) -> str:
        """For sentences."""
        return self.code.name

    @cached_property
    def flow(self) -> Dataflow:
        """Where values come from."""
        return Dataflow(self.code.ptx)

    @cached_property
    def ways(self) -> Ways:
        """The order of execution."""
        return Ways(self.code.ptx)

    @property
    def elements_per_warp(self) -> float:
        """Elements of the output for each warp of the launch, on average."""
        return self.code.elements / (
            self.code.launch.blocks * self.code.warps_per_block
        )

    @property
    def simulated_elements(self) -> float:
        """Elements of the output that the simulated blocks are there for."""
        simulation = self.code.simulation
        return simulation.blocks * simulation.threads * self.code.elements_per_thread

    def ptx(self, *categories: str, opcode: str = "") -> list[Instruction]:
        """The instructions of these categories that are executed, as far as known.

        Those alone in whose opcode the regular expression is found.
        """
        found = self.code.ptx.in_category(*categories)
        return self.used(each for each in found if re.search(opcode, each.opcode))

    def used(self, instructions: Iterable[Instruction]) -> list[Instruction]:
        """Those of the instructions that are executed, as far as known."""
        simulation = self.code.simulation
        if not simulation.is_complete:
            return list(instructions)
        return [
            each
            for each in instructions
            if simulation.executed[each.index] or each.index in self._doubtful
        ]

    def per_element(self, instructions: Iterable[Instruction]) -> float | None:
        """How often a thread executes them for each element; None if unknown."""
        executed = self.code.simulation.executed
        return self._average(instructions, executed, self.simulated_elements)

    def sass_per_element(self, instructions: Iterable[Instruction]) -> float | None:
        """About how often a thread executes SASS instructions for each element.

        An instruction of SASS is taken to be executed as often as that of the PTX which
        it was made from; where there are loops, which the assembler may unroll, that
        would be wrong. None if it is unknown.
        """
        if find_loops(self.code.ptx):
            return None
        by_line = {each.text_line: each for each in self.code.ptx.instructions}
        made_from = [by_line.get(each.ptx_line) for each in instructions]
        return self.per_element(each for each in made_from if each)

    def per_warp(self, instructions: Iterable[Instruction]) -> float | None:
        """How often a warp executes them; None if unknown."""
        simulation = self.code.simulation
        n_warps = simulation.blocks * self.code.warps_per_block
        return self._average(instructions, simulation.warp_executed, n_warps)

    def accesses(self, space: str) -> list[MemoryAccess] | None:
        """The accesses to a memory space; None if they are not known in full."""
        simulation = self.code.simulation
        if not simulation.is_complete or simulation.unknown_opcodes:
            return None
        executed = self.used(self.code.ptx.instructions)
        if any(_UNCOUNTED.match(each.opcode) for each in executed):
            return None
        found = [
            each for each in simulation.accesses if each.space in (space, "generic")
        ]
        is_known = all(
            each.space == space
            and not each.unknown
            and each.index not in self._doubtful
            for each in found
        )
        return found if is_known else None

    def _average(
        self,
        instructions: Iterable[Instruction],
        executed: Sequence[int],
        number: float,
    ) -> float | None:
        """Executions for each of a number of things."""
        indices = [each.index for each in instructions]
        is_known = self.code.simulation.is_complete and not self._doubtful & {*indices}
        if not (is_known and number):
            return None
        return sum(executed[index] for index in indices) / number

    @cached_property
    def _doubtful(self) -> frozenset[int]:
        """Instructions of which it is unknown how often they are executed."""
        depending = map(self.ways.depending_on, self.code.simulation.unknown_branches)
        return frozenset[int]().union(*itertools.filterfalse(self._waits, depending))

    def _waits(self, loop: Iterable[int]) -> bool:
        """Whether a loop does nothing but read until other blocks have written.

        It is counted once, as if they had written before.
        """
        opcodes = {self.code.ptx.instructions[index].opcode for index in loop}
        loads = {each for each in opcodes if each.startswith("ld.relaxed.gpu")}
        return bool(loads) and opcodes - loads <= {"setp.eq.b64", "bra"}


Sides = tuple[Subject, Subject]  # the first and the second: CUDA and Triton of an op
Look = Callable[[Sides], Statement | None]


def are_versions(sides: Sides) -> bool:
    """Whether both sides are of one language: what differs is what was edited."""
    first, second = sides
    return first.code.language == second.code.language


def in_order(first: Side, pair: Sequence[_Item]) -> tuple[_Item, _Item]:
    """Something of CUDA and of Triton, that of one side in front."""
    cuda, triton = pair
    return (cuda, triton) if first == "cuda" else (triton, cuda)


def having(cuda: object, triton: object) -> Side | None:
    """The side that alone has something."""
    return greater(bool(cuda), bool(triton))


def greater(
    cuda: float, triton: float, ratio: float = 1.0, least: float = 0.0
) -> Side | None:
    """The side whose number is greater, by this ratio and by this much at least."""
    if cuda > ratio * triton and cuda >= triton + least:
        return "cuda"
    return "triton" if triton > ratio * cuda and triton >= cuda + least else None


def less(cuda: float, triton: float, ratio: float = 1.0) -> Side | None:
    """The side whose number is less, by this ratio at least."""
    return greater(triton, cuda, ratio)
