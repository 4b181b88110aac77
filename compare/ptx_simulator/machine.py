"""Runs the threads of some blocks through a program.

Lanes that come to the same instruction execute it together. Of all that can go on,
those with the earliest instruction do: so the ways behind a branch meet again where
they should, in all code that compilers make of structured programs.

What is taken for granted, beside what the other modules say:

* A branch on an unknown predicate is not taken, unless the kernel ends behind it; a
  jump by an unknown index goes to the last of its targets; an instruction with an
  unknown predicate is executed. Each is noted. What is written until the ways of such a
  branch meet is unknown afterwards.
* What is waited for at an mbarrier has always come, when all others have gone as far as
  they can.
* Neither blocks nor clusters of them wait for each other. What a block accesses in the
  shared memory of another one of its cluster, it accesses in its own.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from compare.ptx_simulator.barriers import ALL_THREADS, Barriers
from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.doubts import Doubts
from compare.ptx_simulator.group import Group, Layout
from compare.ptx_simulator.meter import Meter
from compare.ptx_simulator.operands import Operand
from compare.ptx_simulator.program import Operation, Program
from compare.ptx_simulator.specials import special_register
from compare.ptx_simulator.values import Lanes, Value, settled, take

# Instructions, each executed in any number of lanes, after which a kernel is stopped.
MOST_STEPS = 500_000


@dataclass
class Counters:
    """Counts over all batches."""

    # By instruction, in how many lanes and in how many warps it was executed.
    executed: Counter[int] = field(default_factory=Counter)
    warp_executed: Counter[int] = field(default_factory=Counter)
    # The instructions whose predicate, or whose target, was unknown.
    unknown: set[int] = field(default_factory=set)
    # Those of the first block, each with a bit for each warp that executes it.
    trace: list[tuple[int, int]] = field(default_factory=list)
    steps: int = 0  # instructions executed, each in any number of lanes
    is_complete: bool = True  # whether all lanes came to their end


class Machine:
    """The threads of one batch, and where in the program each of them is."""

    def __init__(
        self,
        program: Program,
        layout: Layout,
        meter: Meter,
        counters: Counters,
        *,
        is_traced: bool,
    ) -> None:
        """Brings all threads to the first instruction; `is_traced` keeps a trace."""
        decoder = program.decoder
        self._program = program
        self._operations = program.operations
        self.batch = Batch(layout, decoder.dtypes, decoder.addresses, meter)
        for name, slot in decoder.specials.items():
            self.batch.registers[slot] = special_register(name, layout)
        self._counters = counters
        self._is_traced = is_traced
        self._doubts = Doubts(program, self.batch)
        self._barriers = Barriers(layout)
        self._ready = {0: layout.everyone()}  # by the instruction to go on with
        self._waiting: dict[int, Group] = {}  # for other lanes, by the instruction
        self._excused: set[int] = set()  # where they wait no longer
        # Each lets the group, or its parts, go on from where it is to.
        self._steps = {
            "simple": self._pass,
            "branch": self._branch,
            "exit": self._exit,
            "barrier": self._arrive,
            "warp": self._meet,
            "last": self._meet,
        }

    def run(self) -> None:
        """Runs until no lane can go on."""
        counters, operations = self._counters, self._operations
        while self._ready or self._release():
            counters.steps += 1
            if counters.steps > MOST_STEPS:
                counters.is_complete = False
                return
            place = min(self._ready)
            group = self._ready.pop(place)
            if self._doubts:
                self._doubts.settle(place, group)
            operation = operations[place]
            self._steps[operation.kind](place, operation, group)
        if self._barriers.are_waited_at:
            counters.is_complete = False

    def _enter(self, place: int, group: Group | None) -> None:
        """Lets a group go on from an instruction, together with whoever is there."""
        if group is not None and place < len(self._operations):
            self._ready[place] = group.union(self._ready.get(place))

    def _pass(self, place: int, operation: Operation, group: Group) -> None:
        """Executes an instruction behind which all lanes go on together."""
        if lanes := self._candidates(place, operation, group):
            self._count(place, lanes)
            operation.execute(self.batch, lanes)
        self._enter(place + 1, group)

    def _candidates(
        self, place: int, operation: Operation, group: Group
    ) -> Group | None:
        """The lanes whose predicate holds, or may hold."""
        certain, unsure = self._split(place, operation, group)
        return certain if unsure is None else unsure.union(certain)

    def _split(
        self, place: int, operation: Operation, group: Group
    ) -> tuple[Group | None, Group | None]:
        """The lanes whose predicate holds, and those of which that is unknown."""
        if operation.guard is None:
            return group, None
        predicate = self.batch.registers[operation.guard]
        if predicate.known is True:
            return group.where(predicate.bits, negated=operation.is_negated), None
        bits, known = take(predicate, group.lanes)
        known = np.broadcast_to(known, group.size)
        holds = (bits ^ operation.is_negated) & known
        unsure = group.select(~known)
        self._doubt(place, unsure)
        return group.select(holds), unsure

    def _count(self, place: int, group: Group) -> None:
        counters = self._counters
        counters.executed[place] += group.size
        counters.warp_executed[place] += group.warps
        if self._is_traced and (warps := group.warps_of_first_block):
            counters.trace.append((place, warps))

    # ---- Branches --------------------------------------------------------------------

    def _branch(self, place: int, operation: Operation, group: Group) -> None:
        self._count(place, group)
        taken, unsure = self._split(place, operation, group)
        if unsure is not None and self._program.likely_goes(place):
            taken = unsure.union(taken)
        self._enter(place + 1, group.without(taken))
        if taken is None:
            return
        if operation.choice is None:
            self._enter(operation.targets[0], taken)
        else:
            choice = operation.choice(self.batch, taken)
            self._jump(place, operation.targets, taken, choice)

    def _jump(
        self, place: int, targets: tuple[int, ...], group: Group, choice: Value
    ) -> None:
        """`brx`: sends each lane to a target of its own."""
        last = len(targets) - 1
        known = np.broadcast_to(choice.known, group.size)
        choices = np.where(known, np.minimum(choice.bits, last), last)
        self._doubt(place, group.select(~known))
        for number, lanes in group.split(choices):
            self._enter(targets[number], lanes)

    def _exit(self, place: int, operation: Operation, group: Group) -> None:
        ended, _ = self._split(place, operation, group)
        if ended is not None:
            self._count(place, ended)
            self.batch.alive &= ~ended.members
        self._enter(place + 1, group.without(ended))

    def _doubt(self, place: int, group: Group | None) -> None:
        if group is not None:
            self._counters.unknown.add(place)
            self._doubts.begin(place, group)

    # ---- Waiting ---------------------------------------------------------------------

    def _meet(self, place: int, operation: Operation, group: Group) -> None:
        """Executes what needs other lanes, once these are there."""
        late: Group | None = group
        if place in self._excused:
            self._excused.discard(place)
            late = None
        elif operation.choice is not None:
            late = self._waiting_for_others(operation.choice, group)
        if late is not None:
            self._waiting[place] = late.union(self._waiting.get(place))
        there = group.without(late)
        if there is not None:
            self._pass(place, operation, there)

    def _waiting_for_others(self, asked: Operand, group: Group) -> Group | None:
        """The lanes of a group that ask for others which are not there yet."""
        alive = np.packbits(self.batch.alive, bitorder="little").view(np.uint32)
        missing = alive[group.warp_numbers] & ~group.present
        if not missing.any():
            return None
        lanes, known = asked(self.batch, group)
        return group.select(((missing[group.row] & lanes) != 0) & known)

    def _arrive(self, place: int, operation: Operation, group: Group) -> None:
        """Brings a group to a barrier of its blocks."""
        assert operation.choice
        comers = self._candidates(place, operation, group)
        self._enter(place + 1, group.without(comers) if operation.waits else group)
        if comers is None:
            return
        numbers, known = operation.choice(self.batch, comers)
        if settled(known) is not True:
            self._counters.unknown.add(place)
            numbers = np.where(known, numbers, 0)
        threads: Lanes | int = ALL_THREADS
        if operation.threads is not None:
            count, known = operation.threads(self.batch, comers)
            threads = np.where(known, count.astype(np.int64), ALL_THREADS)
        self._count(place, comers)
        operation.execute(self.batch, comers)
        self._barriers.arrive(place, comers, numbers, threads, waits=operation.waits)

    def _release(self) -> bool:
        """Lets those go on who wait, when nobody else can; whether there are any."""
        for place, group in self._barriers.open(self.batch.alive):
            self._enter(place + 1, group)
        if not self._ready:
            # Whom they still wait for will never come.
            self._ready, self._waiting = self._waiting, {}
            self._excused.update(self._ready)
        return bool(self._ready)
