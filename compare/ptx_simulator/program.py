"""A kernel made ready to be run: its instructions decoded, its ways known."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import networkx

from compare.assembly.control_flow import END, meetings, ways
from compare.assembly.listing import Instruction, Listing
from compare.ptx_simulator.alu import ARITHMETIC
from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.bitwise import BITWISE
from compare.ptx_simulator.building import (
    Builder,
    Execute,
    compute,
    do_nothing,
    forget,
)
from compare.ptx_simulator.copies import COPIES
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.loads_and_stores import MEMORY
from compare.ptx_simulator.moves import MOVES
from compare.ptx_simulator.operands import Decoded, Decoder, Operand
from compare.ptx_simulator.selection import SELECTION
from compare.ptx_simulator.simulation import Launch
from compare.ptx_simulator.spaces import Part
from compare.ptx_simulator.values import BOOL, U32, constant
from compare.ptx_simulator.warp import WARP_LEVEL

Kind = Literal["simple", "branch", "exit", "barrier", "warp", "last"]


@dataclass
class Operation:
    """An instruction, ready to be executed."""

    # `simple`, `warp` and `last` go on with the next instruction; before that, lanes of
    # a warp wait for each other at `warp`, and for all other lanes at `last`.
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


# ---- Instructions without a table of their own ---------------------------------------


def _opaque(decoded: Decoded) -> Execute:
    """An instruction whose results are unknown: floating point, matrices, tokens."""
    if not decoded.count or decoded.text(0).startswith("["):
        return do_nothing
    return forget(decoded.destinations())


def _writes_shared_memory(batch: Batch, group: Group) -> None:
    """Executes what writes something unknown into shared memory."""
    batch.lose(Part("shared", group))


def _wmma(decoded: Decoded) -> Execute:
    """`wmma`: its loads and stores are not counted; how lanes share them is secret."""
    return _writes_shared_memory if decoded.has("store") else _opaque(decoded)


def _tcgen05(decoded: Decoded) -> Execute:
    return _writes_shared_memory if decoded.has("alloc") else _opaque(decoded)


def _mbarrier(decoded: Decoded) -> Execute:
    """`mbarrier`: what is waited for has always come, as it does at last."""
    if not any(map(decoded.has, _WAITS)):
        return _opaque(decoded)
    return compute(decoded.destination(), [], lambda: constant(1, BOOL))


_OPAQUE = (
    # Floating point.
    *("copysign", "cos", "ex2", "fma", "lg2", "rcp", "rsqrt", "sin", "sqrt", "tanh"),
    *("testp",),
    # Tensor cores. What they read of shared memory is not counted.
    *("mma", "wgmma", "tensormap"),
    # Order and hints: nothing that a thread could read.
    *("applypriority", "brkpt", "createpolicy", "discard", "fence", "griddepcontrol"),
    *("membar", "nanosleep", "pmevent", "prefetch", "prefetchu", "setmaxnreg"),
)

_BUILDERS: dict[str, Builder] = {
    **ARITHMETIC,
    **BITWISE,
    **SELECTION,
    **MOVES,
    **WARP_LEVEL,
    **MEMORY,
    **COPIES,
    **dict.fromkeys(_OPAQUE, _opaque),
    "wmma": _wmma,
    "tcgen05": _tcgen05,
    "mbarrier": _mbarrier,
}
# The results of these are unknown if a type is floating point.
_FLOATING = (*ARITHMETIC, "cvt", "redux", "set")
_EXITS = ("ret", "exit", "trap")
_WAITS = ("try_wait", "test_wait")


# ---- Programs ------------------------------------------------------------------------


class Program:
    """A kernel made ready to be run.

    Attributes:
        decoder: what its operands refer to.
        operations: one for each instruction.
        unknown_opcodes: those that cannot be simulated, by instruction.
    """

    def __init__(self, listing: Listing, launch: Launch) -> None:
        """Takes all instructions apart.

        Raises:
            ValueError: the launch has more or fewer parameters than the kernel.
        """
        self.decoder = Decoder(listing, launch)
        self.unknown_opcodes: dict[int, str] = {}
        self.operations = tuple(map(self._operation, listing.instructions))

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

    def _operation(self, instruction: Instruction) -> Operation:
        decoded = Decoded(self.decoder, instruction)
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
            is_opaque = stem in _FLOATING and any(e.kind == "f" for e in decoded.types)
            execute = (_opaque if is_opaque else _BUILDERS[stem])(decoded)
        except LookupError:  # another opcode, or a form with other operands
            self.unknown_opcodes[decoded.instruction.index] = decoded.instruction.opcode
            execute = _unknown(decoded)
        if stem in WARP_LEVEL and decoded.has("sync"):
            return Operation("warp", execute, choice=decoded.source(-1, U32))
        waits = stem == "mbarrier" and any(map(decoded.has, _WAITS))
        return Operation("last" if waits else "simple", execute)

    def _targets(self, decoded: Decoded) -> tuple[int, ...]:
        declarations, index = self.decoder.declarations, decoded.instruction.index
        last = decoded.text(decoded.count - 1)
        labels = declarations.jump_tables.get(last, (last,))
        places = [declarations.target(index, label) for label in labels]
        return tuple(place for place in places if place is not None)


def _barrier(decoded: Decoded) -> Operation:
    if decoded.has("cluster"):
        return Operation("simple")
    if decoded.has("warp"):
        return Operation("warp", choice=decoded.source(0, U32))
    reduces = decoded.has("red")  # has a result, which is unknown, and what it is of
    first = 1 if reduces else 0
    has_threads = decoded.count > (3 if reduces else 1)
    return Operation(
        "barrier",
        execute=forget(decoded.destinations()) if reduces else do_nothing,
        choice=decoded.source(first, U32),
        threads=decoded.source(first + 1, U32) if has_threads else None,
        waits=not decoded.has("arrive"),
    )


def _unknown(decoded: Decoded) -> Execute:
    """Executes what cannot be simulated: afterwards less is known."""
    lost = _opaque(decoded)

    def execute(batch: Batch, group: Group) -> None:
        lost(batch, group)
        batch.lose(Part("generic", group))

    return execute
