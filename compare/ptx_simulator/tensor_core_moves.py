"""`tcgen05`: columns of tensor memory, and moves between it and registers.

Of the 128 lanes a warp reaches 32, by its place among four: a quarter.
"""

import re

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.bounds import Access
from compare.ptx_simulator.building import Execute, do_nothing
from compare.ptx_simulator.fragments import (
    Elements,
    read_registers,
    whole_warps,
    write_registers,
)
from compare.ptx_simulator.group import WARP, WARPGROUP, Group
from compare.ptx_simulator.operands import (
    Decoded,
    Operand,
    UnmodelledError,
    parse_integer,
)
from compare.ptx_simulator.spaces import Part, parts
from compare.ptx_simulator.tensor_core_memory import Cells
from compare.ptx_simulator.values import U32, Bits, Mask, Value, settled

# ---- Columns -------------------------------------------------------------------------


def _leaders(batch: Batch, group: Group, index: int) -> Group | None:
    """The first lane of each warp, which acts for it; None if no warp is whole."""
    warps = whole_warps(batch, group, [], index)
    return None if warps is None else warps.select(warps.column == 0)


def _numbers(operand: Operand, batch: Batch, group: Group) -> list[int]:
    """What lanes pass; -1 where that is unknown."""
    bits, known = operand(batch, group)
    numbers = np.where(known, bits.astype(np.int64), -1)
    return [int(each) for each in np.broadcast_to(numbers, group.size)]


def allocate(decoded: Decoded) -> Execute:
    """`alloc`: the address of the columns goes to shared memory."""
    access = Access(decoded.instruction.index, is_store=True, bytes_per_thread=4)
    space = next(iter(decoded.spaces), "generic")
    address, columns = decoded.address(0), decoded.source(1, U32)

    def execute(batch: Batch, group: Group) -> None:
        if not batch.has_contents:  # and so none of tensor memory
            batch.lose(Part("shared", group))
            return
        leaders = _leaders(batch, group, access.index)
        if leaders is None:
            return
        sizes = _numbers(columns, batch, leaders)
        found = [
            batch.tensor_memory.allocate(block, size)
            for block, size in zip(leaders.blocks, sizes, strict=True)
        ]
        firsts = np.array([-1 if each is None else each for each in found])
        without = leaders.select(firsts < 0)
        if without is not None:
            what = "asks for columns of tensor memory that its block cannot have"
            batch.tell(access.index, without, what)
        for part in parts(space, leaders, address(batch, leaders)):
            batch.count(access, part)
            if part.space != "shared" or part.addresses is None:
                batch.tell(access.index, part.group, "names no shared memory")
                continue
            given = firsts[part.group.members[leaders.numbers]]
            value = Value(given.astype(U32), given >= 0)
            batch.shared.store(part.group, part.addresses, value, U32)

    return execute


def free(decoded: Decoded) -> Execute:
    """`dealloc`: afterwards others may get the columns."""
    address, columns = decoded.source(0, U32), decoded.source(1, U32)
    index = decoded.instruction.index

    def execute(batch: Batch, group: Group) -> None:
        leaders = _leaders(batch, group, index) if batch.has_contents else None
        if leaders is None:
            return
        firsts = _numbers(address, batch, leaders)
        sizes = _numbers(columns, batch, leaders)
        for block, first, size in zip(leaders.blocks, firsts, sizes, strict=True):
            if not batch.tensor_memory.free(block, first, size):
                what = "gives back columns of tensor memory that it was not given"
                batch.tell(index, leaders, what)

    return execute


def relinquish(decoded: Decoded) -> Execute:
    """`relinquish_alloc_permit`: the block asks for nothing more."""
    return lambda batch, group: batch.tensor_memory.relinquish(group.blocks)


# ---- What is there -------------------------------------------------------------------


def are_there(
    batch: Batch, index: int, group: Group, cells: Cells, does: str = "reads"
) -> bool:
    """Whether all cells, by lane first, are there; it is told who uses others."""
    there = batch.tensor_memory.are_there(cells).reshape(group.size, -1)
    others = group.select(~np.logical_and.reduce(there, axis=1))
    if others is not None:
        batch.tell(index, others, f"{does} tensor memory that its block does not have")
    return others is None


def load(batch: Batch, index: int, group: Group, cells: Cells) -> Value:
    """What is in cells, by lane first, all there; unwritten ones are told of."""
    value = batch.tensor_memory.load(cells)
    if not isinstance(value.known, bool):
        place = tuple(int(each[0]) for each in np.nonzero(~value.known))
        lane, column = cells.at(place)
        reader = group.numbers[place[0] : place[0] + 1]
        what = f"reads tensor memory in lane {lane}, column {column}, never written"
        batch.tell(index, Group(reader, group.layout), what)
    return value


# ---- Between registers and tensor memory ---------------------------------------------

# In the first, each lane of a warp moves what is in one lane of tensor memory. In the
# second, the two halves of a warp share 16 lanes, and the second half begins at columns
# further on: by an immediate operand.
_FORM = re.compile(r"(?:ld|st)\.sync\.aligned\.(32x32b|16x32bx2)\.x(\d+)\.b32")


class _Move:
    """What `ld` and `st` move.

    Attributes:
        index: of the instruction.
        registers: the position of the operand that names them.
    """

    def __init__(self, decoded: Decoded, *, is_store: bool) -> None:
        """Decodes the address and the shape.

        Raises:
            UnmodelledError: the simulator does not know the shape.
        """
        form = _FORM.fullmatch(".".join(decoded.modifiers))
        has_halves = form is not None and form[1] == "16x32bx2"
        if form is None or decoded.count != 2 + has_halves:
            raise UnmodelledError
        self.index = decoded.instruction.index
        self.registers = decoded.count - 1 if is_store else 0
        self._does = "writes" if is_store else "reads"
        self._columns = int(form[2])
        self._rows = 16 if has_halves else 32
        self._address = decoded.address(0 if is_store else 1)
        step = parse_integer(decoded.text(1 if is_store else 2)) if has_halves else 0
        if step is None:
            raise UnmodelledError
        self._step = step

    def cells(self, batch: Batch, warps: Group) -> Cells | None:
        """By lane and register; None if a warp must not access them: this is told."""
        bits, known = self._address(batch, warps)
        if settled(known) is not True:
            batch.tell(self.index, warps, f"{self._does} unknown tensor memory")
            return None
        half, row = np.divmod(warps.column, self._rows)
        addresses = np.broadcast_to(bits, warps.size)
        by_warp = addresses.reshape(-1, WARP)
        is_strange = np.repeat((by_warp != by_warp[:, :1]).any(axis=1), WARP)
        addresses = addresses + half * self._step
        first, columns = addresses >> 16, addresses & 0xFFFF
        quarters = warps.layout.thread_of_lane[warps.numbers] % WARPGROUP // WARP
        is_strange |= first % self._rows != 0
        is_strange |= (first + row) // WARP != quarters
        others = warps.select(is_strange)
        if others is not None:
            what = f"{self._does} lanes of tensor memory that its warp does not reach"
            batch.tell(self.index, others, what)
            return None
        cells = Cells(
            warps.blocks[:, np.newaxis],
            (first + row)[:, np.newaxis],
            columns[:, np.newaxis] + np.arange(self._columns),
        )
        if not are_there(batch, self.index, warps, cells, self._does):
            return None
        return cells


def load_registers(decoded: Decoded) -> Execute:
    """`ld`: who uses the registers waits by itself.

    `wait::ld` is for those who overwrite what is loaded.
    """
    move, slots = _Move(decoded, is_store=False), decoded.destinations()

    def execute(batch: Batch, group: Group) -> None:
        if not batch.has_contents:
            batch.forget(slots, group)
            return
        warps = whole_warps(batch, group, slots, move.index)
        if warps is None:
            return
        cells = move.cells(batch, warps)
        if cells is None:
            batch.forget(slots, warps)
            return
        loaded = Elements(*load(batch, move.index, warps, cells))
        write_registers(slots, batch, warps, loaded.arranged(_by_register))

    return execute


def store_registers(decoded: Decoded) -> Execute:
    """`st`: tensor memory has what it stores once its warp has waited for it."""
    move = _Move(decoded, is_store=True)
    sources = decoded.sources(move.registers, U32)

    def execute(batch: Batch, group: Group) -> None:
        warps = (
            whole_warps(batch, group, [], move.index) if batch.has_contents else None
        )
        cells = None if warps is None else move.cells(batch, warps)
        if warps is None or cells is None:
            return
        places, registers = cells, read_registers(sources, batch, warps)

        def act(chosen: Mask) -> None:
            value = Value(*registers)
            if value.known is not False:
                by_lane = registers.arranged(lambda e: _by_register(e)[chosen])
                value = Value(*by_lane)
            batch.tensor_memory.store(places.select(chosen), value)

        batch.tensor_memory.stores.start(warps.numbers, act)

    return execute


def _by_register(elements: Bits) -> Bits:
    """By register and lane; given by lane and register, or the inverse."""
    return np.ascontiguousarray(elements.reshape(len(elements), -1).T)


def wait(decoded: Decoded) -> Execute:
    """`wait`: for all stores of the lanes; loads have been done."""
    if decoded.has("wait::ld"):
        return do_nothing
    return lambda batch, group: batch.tensor_memory.stores.finish(group)
