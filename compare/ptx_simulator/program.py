"""A kernel made ready to be run: its instructions decoded, its ways known."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import networkx
import numpy as np

from compare.assembly.control_flow import END, meetings, natural_loops, ways
from compare.assembly.listing import Listing
from compare.ptx_simulator.alu import ARITHMETIC
from compare.ptx_simulator.atomics import ATOMICS
from compare.ptx_simulator.batch import NOT_SIMULATED, Batch
from compare.ptx_simulator.bitwise import BITWISE
from compare.ptx_simulator.building import (
    Builder,
    Execute,
    do_nothing,
    forget,
)
from compare.ptx_simulator.contents import Buffer
from compare.ptx_simulator.conversions import CONVERSIONS
from compare.ptx_simulator.copies import COPIES
from compare.ptx_simulator.float_arithmetic import FLOATING
from compare.ptx_simulator.group import WARP, WARPGROUP, Group
from compare.ptx_simulator.last_uses import unused_from
from compare.ptx_simulator.loads_and_stores import MEMORY
from compare.ptx_simulator.matrices import MATRICES
from compare.ptx_simulator.mbarriers import MBARRIERS, WAITS, Ended, phase_of_wait
from compare.ptx_simulator.moves import MOVES
from compare.ptx_simulator.operands import (
    Decoded,
    Decoder,
    Operand,
    UnmodelledError,
)
from compare.ptx_simulator.questions import questions
from compare.ptx_simulator.register_use import Use
from compare.ptx_simulator.selection import SELECTION
from compare.ptx_simulator.spaces import Part
from compare.ptx_simulator.tcgen05 import TCGEN05
from compare.ptx_simulator.values import U8, U32, constant
from compare.ptx_simulator.warp import WARP_LEVEL
from compare.ptx_simulator.warpgroups import WARPGROUPS

Kind = Literal["simple", "branch", "exit", "barrier", "cluster", "warp", "wait"]


@dataclass
class Operation:
    """An instruction, ready to be executed."""

    # All but `branch` and `exit` go on with the next instruction. Before that, lanes of
    # a warp wait for each other at `warp`, those of a block at `barrier`, of a cluster
    # at `cluster`; at `wait` for the phase of an mbarrier.
    kind: Kind
    execute: Execute = do_nothing  # what it does, other than to lead somewhere
    guard: int | None = None  # the slot of its predicate, if it has one
    is_negated: bool = False  # whether the predicate must be false
    writes: tuple[int, ...] = ()  # the slots of the registers that it changes
    targets: tuple[int, ...] = ()  # where a branch may lead to
    # Which of several targets is taken; of a barrier its number; of what lanes do
    # together, a bit for each of those lanes.
    choice: Operand | None = None
    # How many threads a barrier waits for, if not all of the block.
    threads: Operand | None = None
    waits: bool = True  # whether a barrier stops the threads that come to it
    # Of a branch back to a question to other blocks, the registers that asking changes.
    asks_again: tuple[int, ...] = ()
    ended: Ended | None = None  # for whom the phase of a `wait` is over


# ---- Instructions without a table of their own ---------------------------------------


def _opaque(decoded: Decoded) -> Execute:
    """An instruction that leads on as any other, but whose results are unknown."""
    lost = _hint(decoded)
    index = decoded.instruction.index

    def execute(batch: Batch, group: Group) -> None:
        batch.tell(index, group, NOT_SIMULATED)
        lost(batch, group)

    return execute


def _hint(decoded: Decoded) -> Execute:
    """An instruction whose results nothing depends on: orders, hints, policies."""
    if not decoded.count or decoded.text(0).startswith("["):
        return do_nothing
    return forget(decoded.destinations())


def _fence(decoded: Decoded) -> Execute:
    """`fence`: of them all, the async proxy alone cannot do without one here."""
    if not (decoded.has("proxy") and decoded.has("async")):
        return do_nothing

    def execute(batch: Batch, group: Group) -> None:
        if batch.races:
            batch.races.fence_async(group)

    return execute


def _share_registers(decoded: Decoded) -> Execute:
    """`setmaxnreg`: who gives registers away does not multiply by `wgmma`."""
    gives = decoded.has("dec")

    def execute(batch: Batch, group: Group) -> None:
        batch.has_given_registers[group.numbers] = gives

    return execute


def _writes_shared_memory(batch: Batch, group: Group) -> None:
    """Executes what writes something unknown into shared memory."""
    batch.lose(Part("shared", group))


def _wmma(decoded: Decoded) -> Execute:
    """`wmma`: its loads and stores are not counted; how lanes share them is secret."""
    return _writes_shared_memory if decoded.has("store") else _opaque(decoded)


def _product(builder: Builder) -> Builder:
    """Builds products of matrices; of formats that nobody computes they are opaque."""

    def build(decoded: Decoded) -> Execute:
        try:
            return builder(decoded)
        except UnmodelledError:
            return _opaque(decoded)

    return build


_OPAQUE = ("tensormap",)
_HINTS = (
    *("applypriority", "brkpt", "createpolicy", "discard", "griddepcontrol"),
    *("membar", "nanosleep", "pmevent", "prefetch", "prefetchu"),
)

_BUILDERS: dict[str, Builder] = {
    **ARITHMETIC,
    **BITWISE,
    **SELECTION,
    **MOVES,
    **CONVERSIONS,
    **WARP_LEVEL,
    **MEMORY,
    **MATRICES,
    "mma": _product(MATRICES["mma"]),
    "wgmma": _product(WARPGROUPS["wgmma"]),
    **ATOMICS,
    **COPIES,
    **dict.fromkeys(_OPAQUE, _opaque),
    **dict.fromkeys(_HINTS, _hint),
    "fence": _fence,
    "setmaxnreg": _share_registers,
    "wmma": _wmma,
    "tcgen05": _product(TCGEN05["tcgen05"]),
    **MBARRIERS,
}
_EXITS = ("ret", "exit", "trap")
_ALL_LANES = constant(0xFFFF_FFFF, U32)  # of a warp


# ---- Programs ------------------------------------------------------------------------


class Program:
    """A kernel made ready to be run.

    Attributes:
        kernel: its name.
        decoder: what its operands refer to.
        operations: one for each instruction.
        unused: for each instruction, registers that none uses from there on.
        unknown_opcodes: those that cannot be simulated, by instruction.
        acts_together: how many threads there are in a warp, or in a warpgroup if the
            kernel has any.
    """

    def __init__(self, listing: Listing) -> None:
        """Takes all instructions apart."""
        self.kernel = listing.kernel
        self.decoder = Decoder(listing)
        self.unknown_opcodes: dict[int, str] = {}
        together = any(each.stem == "wgmma" for each in listing.instructions)
        self.acts_together = WARPGROUP if together else WARP
        decoded = [Decoded(self.decoder, each) for each in listing.instructions]
        self.operations = tuple(map(self._operation, decoded))
        self.unused = unused_from(
            [*map(_registers, decoded, self.operations)],
            (
                (place, target)
                for place, operation in enumerate(self.operations)
                for target in operation.targets
            ),
        )
        for loop in questions(listing, lambda: natural_loops(self._graph)):
            written = {s for place in loop.body for s in self.operations[place].writes}
            for place in loop.body:
                operation = self.operations[place]
                if operation.targets == (loop.head,):
                    operation.asks_again = tuple(sorted(written))
        products = [each.product for each in decoded if each.product]
        shared = frozenset[int]().union(*(each.sums | each.left for each in products))
        for each, operation in zip(decoded, self.operations, strict=True):
            if shared and not each.product:
                _look_at_use(each, operation, shared)

    def variables(self, space: str) -> list[Buffer]:
        """Memory of the kernel's variables in a space, as a launch finds them."""
        return [
            Buffer(each.name, address, np.frombuffer(each.initial(), U8))
            for each in self.decoder.declarations.variables
            if each.space == space
            and (address := self.decoder.addresses.by_name.get(each.name)) is not None
        ]

    def meeting_point(self, place: int) -> tuple[int, set[int]]:
        """Where it no longer matters which way lanes went, and the registers changed.

        The place is `END` if the ways behind a branch meet at the kernel's end only.
        """
        operation = self.operations[place]
        if operation.kind not in ("branch", "exit"):
            return place + 1, set(operation.writes)
        meeting = self._meetings.get(place, END)
        between = ways(self._graph, self._graph.successors(place), meeting)
        return meeting, {slot for e in between for slot in self.operations[e].writes}

    def likely_goes(self, branch: int) -> bool:
        """Whether an unknown branch is better taken than not.

        It is if the kernel ends behind it, and there is less left of it than at the
        target: so it is where an assertion fails, or where a thread has nothing to do.
        """
        targets = self.operations[branch].targets
        if self._meetings.get(branch, END) != END or len(targets) != 1:
            return False
        behind, elsewhere = (
            ways(self._graph, starts, END) for starts in ((branch + 1,), targets)
        )
        return len(behind) < len(elsewhere)

    @cached_property
    def _meetings(self) -> dict[int, int]:
        return meetings(self._graph)

    @cached_property
    def _graph(self) -> networkx.DiGraph:
        """From each instruction to those that may follow it, and to the end."""
        graph = networkx.DiGraph()
        graph.add_node(END)
        graph.add_edges_from(
            (place, follower)
            for place in range(len(self.operations))
            for follower in self._followers(place)
        )
        return graph

    def _followers(self, place: int) -> tuple[int, ...]:
        operation = self.operations[place]
        behind = place + 1 if place + 1 < len(self.operations) else END
        if operation.kind == "exit":
            return (END,) if operation.guard is None else (END, behind)
        if operation.kind == "branch":
            always = operation.guard is None
            return operation.targets if always else (*operation.targets, behind)
        return (behind,)

    def _operation(self, decoded: Decoded) -> Operation:
        instruction = decoded.instruction
        operation = self._decode(decoded)
        operation.writes = tuple(decoded.writes)
        if instruction.predicate:
            name = instruction.predicate.lstrip("!")
            operation.guard = self.decoder.register(instruction.index, name)
            assert operation.guard is not None, f"{instruction.text}: no {name}"
            operation.is_negated = instruction.predicate.startswith("!")
        return operation

    def _decode(self, decoded: Decoded) -> Operation:
        stem = decoded.stem
        if stem in _EXITS:
            return Operation("exit")
        if stem in ("bra", "brx"):
            choice = decoded.source(0, U32) if stem == "brx" else None
            return Operation("branch", targets=self._targets(decoded), choice=choice)
        if stem in ("bar", "barrier"):
            return _barrier(decoded)
        try:
            has_floats = any(each.kind == "f" for each in decoded.types)
            builders = FLOATING if has_floats and stem in FLOATING else _BUILDERS
            execute = builders[stem](decoded)
        except LookupError:  # another opcode, or a form with other operands
            self.unknown_opcodes[decoded.instruction.index] = decoded.instruction.opcode
            execute = _unknown(decoded)
        if stem in WARP_LEVEL and decoded.has("sync"):
            return Operation("warp", execute, choice=decoded.source(-1, U32))
        if stem in (*MATRICES, *WARPGROUPS, *TCGEN05) and decoded.has("sync"):
            return Operation("warp", execute, choice=lambda batch, group: _ALL_LANES)
        if stem == "mbarrier" and any(map(decoded.has, WAITS)):
            return Operation("wait", execute, ended=phase_of_wait(decoded))
        return Operation("simple", execute)

    def _targets(self, decoded: Decoded) -> tuple[int, ...]:
        declarations, index = self.decoder.declarations, decoded.instruction.index
        last = decoded.text(decoded.count - 1)
        labels = declarations.jump_tables.get(last, (last,))
        places = [declarations.target(index, label) for label in labels]
        return tuple(place for place in places if place is not None)


def _registers(decoded: Decoded, operation: Operation) -> set[int]:
    """All that an instruction reads or writes."""
    guard = () if operation.guard is None else (operation.guard,)
    return decoded.reads.union(decoded.writes, guard)


def _look_at_use(decoded: Decoded, operation: Operation, slots: frozenset[int]) -> None:
    """Has an operation looked at if it uses any of these registers of products."""
    reads, writes = slots & decoded.reads, slots.intersection(decoded.writes)
    if not (reads or writes):
        return
    use = Use(decoded.instruction.index, reads, writes, _is_move(decoded, slots))
    execute = operation.execute

    def look(batch: Batch, group: Group) -> None:
        if batch.register_use:
            batch.register_use.use(use, group)
        execute(batch, group)

    operation.execute = look


def _is_move(decoded: Decoded, slots: frozenset[int]) -> bool:
    """Whether it moves a number, or one of these registers, always and as a whole."""
    return (
        decoded.stem == "mov"
        and not decoded.instruction.predicate
        and not any("{" in each for each in decoded.instruction.operands)
        and decoded.reads <= slots
    )


def _barrier(decoded: Decoded) -> Operation:
    if decoded.has("cluster"):
        return Operation("cluster", waits=decoded.has("wait"))
    if decoded.has("warp"):
        return Operation("warp", choice=decoded.source(0, U32))
    # It has a result, which is unknown, and an operand that this is of.
    reduces = decoded.has("red")
    first = 1 if reduces else 0
    has_threads = decoded.count > (3 if reduces else 1)
    return Operation(
        "barrier",
        execute=_opaque(decoded) if reduces else do_nothing,
        choice=decoded.source(first, U32),
        threads=decoded.source(first + 1, U32) if has_threads else None,
        waits=not decoded.has("arrive"),
    )


def _unknown(decoded: Decoded) -> Execute:
    """Executes what cannot be simulated: afterwards less is known."""
    lost = _opaque(decoded)  # tells of it, too

    def execute(batch: Batch, group: Group) -> None:
        lost(batch, group)
        batch.lose(Part("generic", group))

    return execute
