"""Runs the threads of some blocks through a program.

Lanes that come to the same instruction execute it together. Of all that can go on,
those with the earliest instruction do: so the ways behind a branch meet again where
they should, in all code that compilers make of structured programs.

What is taken for granted, beside what the other modules say:

* A branch on an unknown predicate is not taken, unless the kernel ends behind it; a
  jump by an unknown index goes to the last of its targets; an instruction with an
  unknown predicate is executed. Each is noted. What is written until the ways of such a
  branch meet is unknown afterwards.
* Without contents, what is waited for at an mbarrier has always come when all others
  have gone as far as they can; blocks of a cluster do not wait for each other, and what
  a block accesses in the shared memory of another one, it accesses in its own.
* Blocks of different clusters wait for each other only in loops that read global memory
  by an atomic, or acquire it, and write nothing; of many blocks, later ones for earlier
  ones.
"""

import numpy as np

from compare.ptx_simulator.barriers import ALL_THREADS, Barriers, ClusterBarriers
from compare.ptx_simulator.batch import NOT_SIMULATED, Batch, Memory
from compare.ptx_simulator.bounds import Watch
from compare.ptx_simulator.counters import Counters
from compare.ptx_simulator.doubts import Doubts
from compare.ptx_simulator.group import WARP, Group, Layout
from compare.ptx_simulator.meter import Meter
from compare.ptx_simulator.operands import Operand
from compare.ptx_simulator.program import Operation, Program
from compare.ptx_simulator.specials import special_register
from compare.ptx_simulator.values import Lanes, Mask, Value, settled, take
from compare.ptx_simulator.warp_order import WarpOrder

# Instructions, each executed in any number of lanes, after which a kernel is stopped.
# Where warps take turns, each has so many.
MOST_STEPS = 500_000
# How often blocks ask what others have written while no answer is another one.
MOST_QUESTIONS = 1000


class Machine:
    """The threads of one batch, and where in the program each of them is."""

    def __init__(
        self,
        program: Program,
        layout: Layout,
        meter: Meter | Watch,
        memory: Memory,
        counters: Counters,
        *,
        is_traced: bool,
        ends_at_fault: bool = False,
        order: str = "",
    ) -> None:
        """Brings all threads to the first instruction.

        Args:
            program: what they execute.
            layout: which threads they are.
            meter: counts accesses, or looks whether they are within bounds.
            memory: what the launch brings along.
            counters: are added to.
            is_traced: keeps a trace of the first block.
            ends_at_fault: runs no further once there is something to tell.
            order: in which the warps of a block are run; the whole batch if not given.
        """
        decoder = program.decoder
        self._program = program
        self._operations = program.operations
        self.batch = Batch(layout, decoder.dtypes, decoder.addresses, meter, memory)
        for name, slot in decoder.specials.items():
            self.batch.registers[slot] = special_register(name, layout)
        self._counters = counters
        # Else products that are put off still read, or ways may turn out to be wrong.
        self._may_let_go = memory.contents is not None and not memory.is_late
        self._is_traced = is_traced
        self._ends_at_fault = ends_at_fault
        self._warp_order = WarpOrder(order) if order else None
        self._latecomer = self._warp_order and self._warp_order.latecomer(layout)
        self._answers: dict[tuple[int, bytes], bytes] = {}  # by target and who asks
        self._vain_questions = 0  # since an answer was another one
        n_turns = layout.lanes_per_block // program.acts_together if order else 1
        self._most_steps = MOST_STEPS * max(n_turns, 1)
        self._doubts = Doubts(program, self.batch)
        self._barriers = Barriers(layout, self.batch.races)
        self._ready = {0: layout.everyone()}  # by the instruction to go on with
        self._waiting: dict[int, Group] = {}  # for other lanes, by the instruction
        self._excused: set[int] = set()  # where they wait no longer
        # Who asks again whether a phase is over, or what another block has written.
        self._polling: dict[int, Group] = {}
        self._asking: dict[int, Group] = {}
        self._clusters = ClusterBarriers(layout, self.batch.races)
        # Each lets the group, or its parts, go on from where it is to.
        self._steps = {
            "simple": self._pass,
            "branch": self._branch,
            "exit": self._exit,
            "barrier": self._arrive,
            "cluster": self._meet_cluster,
            "warp": self._meet,
            "wait": self._await,
        }

    def run(self) -> None:
        """Runs until no lane can go on."""
        if self.batch.has_contents:  # where everything is run, each batch has so many
            self._most_steps += self._counters.steps
        while self._counters.is_complete and (self._ready or self._release()):
            if self._warp_order:
                self._take_turns()
            else:
                self._go_on()
        if self._counters.is_complete:
            self._end()
        elif self._vain_questions > MOST_QUESTIONS:
            for place, group in self._asking.items():
                self.batch.tell(place, group, "waits for ever for what no block writes")
            self._tell_who_waits()

    def _take_turns(self) -> None:
        """Runs the warps of a block one after the other, each as far as it can go.

        So one of them reads what another has not written yet, or has overwritten, if
        nothing makes them wait for each other.
        """
        turns: dict[int, dict[int, Group]] = {}  # by warp, or by warpgroup
        if self._latecomer:
            together = self._program.acts_together > WARP
            multiplies = together and ~self.batch.has_given_registers
            self._ready = self._latecomer.hold(self._ready, multiplies)
        for place, group in self._ready.items():
            threads = self.batch.layout.thread_of_lane[group.numbers]
            for warp, part in group.split(threads // self._program.acts_together):
                turns.setdefault(warp, {})[place] = part
        assert self._warp_order
        for warp in self._warp_order.ordered(turns):
            self._ready = turns[warp]
            self._go_on()

    def _go_on(self) -> None:
        """Runs until no lane can go on that need not wait."""
        counters = self._counters
        most = min(self._most_steps, counters.steps + MOST_STEPS)
        while self._ready:
            counters.steps += 1
            is_told = self._ends_at_fault and self.batch.has_faults
            if is_told or counters.steps > most:
                counters.is_complete = False
                return
            self._step()

    def _step(self) -> None:
        """Executes the earliest instruction that any lane can go on with."""
        place = min(self._ready)
        group = self._ready.pop(place)
        if self._doubts:
            self._doubts.settle(place, group)
        unused = self._program.unused[place]
        if unused and self._may_let_go and group.size == self.batch.n_alive:
            self.batch.let_go(unused)
        operation = self._operations[place]
        self._steps[operation.kind](place, operation, group)

    def _end(self) -> None:
        """Looks who waits in vain, when nobody can go on."""
        self._tell_who_waits()
        if self._polling or self._barriers.are_waited_at:
            self._counters.is_complete = False
        elif self.batch.lives:
            self.batch.lives.look()
        for kind in ("copies", "bulk copies"):
            self.batch.queues[kind].finish(self.batch.layout.all_lanes)

    def _tell_who_waits(self) -> None:
        """For phases and at barriers, when nobody can go on."""
        for place, group in self._polling.items():
            self.batch.tell(place, group, "waits for ever: the phase never ends")
        for place, group in self._barriers.waiting():
            self.batch.tell(place, group, "waits for ever: not all come to the barrier")

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
        if operation.asks_again and self.batch.has_contents:
            self._ask(operation, taken)
        elif operation.choice is None:
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
            self.batch.end(ended)
        self._enter(place + 1, group.without(ended))

    def _doubt(self, place: int, group: Group | None) -> None:
        if group is not None:
            self._counters.unknown.add(place)
            self._doubts.begin(place, group)

    # ---- Waiting ---------------------------------------------------------------------

    def _await(self, place: int, operation: Operation, group: Group) -> None:
        """Lets those go on for whom a phase is over; the others ask again later."""
        if not self.batch.has_contents:
            self._meet(place, operation, group)
            return
        waiting = self._candidates(place, operation, group)
        if waiting is not None:
            is_over = self._is_over(place, operation, waiting)
            late = waiting.select(~is_over)
            if late is not None:
                self._polling[place] = late.union(self._polling.get(place))
                there = group.without(late)
                if there is not None:
                    self._pass(place, operation, there)
                return
        self._pass(place, operation, group)

    def _is_over(self, place: int, operation: Operation, group: Group) -> Mask:
        if operation.kind == "cluster":
            return self._clusters.are_over(group, self.batch.alive)
        if operation.ended is None:
            self.batch.tell(place, group, NOT_SIMULATED)
            return np.ones(group.size, np.bool_)
        return operation.ended(self.batch, group)

    def _meet_cluster(self, place: int, operation: Operation, group: Group) -> None:
        """Brings a group to the barrier of its clusters, or has it wait there."""
        if not self.batch.has_contents:
            self._pass(place, operation, group)
        elif operation.waits:
            self._await(place, operation, group)
        else:
            comers = self._candidates(place, operation, group)
            if comers is not None:
                self._clusters.arrive(comers)
            self._pass(place, operation, group)

    def _ask_again(self) -> None:
        """Lets those go on whose phase is over by now."""
        for place, group in list(self._polling.items()):
            is_over = self._is_over(place, self._operations[place], group)
            free = group.select(is_over)
            if free is None:
                continue
            del self._polling[place]
            rest = group.without(free)
            if rest is not None:
                self._polling[place] = rest
            self._operations[place].execute(self.batch, free)
            self._count(place, free)
            self._enter(place + 1, free)

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

    def _ask(self, operation: Operation, group: Group) -> None:
        """Has lanes ask again when others have gone on, who may write the answer."""
        target = operation.targets[0]
        self._asking[target] = group.union(self._asking.get(target))
        values = (self.batch.read(slot, group) for slot in operation.asks_again)
        answer = b"".join(each.bits.tobytes() for each in values)
        who = target, group.numbers.tobytes()
        if self._answers.get(who) != answer:
            self._answers[who] = answer
            self._vain_questions = 0

    def _go_back(self) -> None:
        """To a question, or to what was held back; for the last time after too many."""
        held = self._latecomer.held if self._latecomer else {}
        back = held if held and self._vain_questions else self._asking or held
        if back is self._asking:
            self._vain_questions += bool(back)
            self._counters.is_complete = self._vain_questions <= MOST_QUESTIONS
        self._ready = back.copy()
        back.clear()

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
        if self._polling:
            self._ask_again()
            # Nobody can tell when asynchronous work is done: so late as possible.
            while not self._ready and self.batch.deliveries.deliver():
                self._ask_again()
        if not self._ready:
            self._go_back()
        if not self._ready:
            # Whom they still wait for will never come.
            self._ready, self._waiting = self._waiting, {}
            self._excused.update(self._ready)
        return bool(self._ready)
