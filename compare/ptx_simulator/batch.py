"""The state of all threads of some blocks: registers, memory, what is in doubt."""

from collections.abc import Iterable, Sequence

from compare.ptx_simulator.group import Group, Layout
from compare.ptx_simulator.meter import Access, Meter
from compare.ptx_simulator.spaces import Addresses, Part
from compare.ptx_simulator.storage import Storage
from compare.ptx_simulator.values import (
    BOOL,
    Dtype,
    Mask,
    Value,
    put,
    settled,
    take,
    unknown,
)


class Batch:
    """Blocks that run side by side; one lane is one thread.

    Attributes:
        layout: which lane is which thread.
        dtypes: of the registers, by slot.
        registers: by slot.
        storages: by space: shared memory of every block, local memory of every lane.
        meter: counts accesses to memory.
        alive: for each lane, whether it is a thread that has not come to its end.
        doubt: the lanes that may be where they are by mistake, because a branch or a
            predicate was unknown; None if there are none.
    """

    def __init__(
        self,
        layout: Layout,
        dtypes: Sequence[Dtype],
        addresses: Addresses,
        meter: Meter,
    ) -> None:
        """Begins with nothing in registers and memory."""
        self.layout = layout
        self.dtypes = dtypes
        self.registers = [unknown(dtype) for dtype in dtypes]
        self.storages = {
            "shared": Storage(
                len(layout.blocks), addresses.shared_bytes, lambda group: group.blocks
            ),
            "local": Storage(
                layout.lanes, addresses.local_bytes, lambda group: group.numbers
            ),
        }
        self.meter = meter
        self.alive = layout.everyone().members.copy()
        self.doubt: Mask | None = None

    def read(self, slot: int, group: Group) -> Value:
        """The value of a register in the lanes of a group."""
        return take(self.registers[slot], group.lanes)

    def write(self, slot: int | None, group: Group, value: Value) -> None:
        """Puts a value of a group's lanes into a register; without a slot, nowhere.

        A wider register is filled up with zeros, or with the sign of signed numbers.
        """
        if slot is None:
            return
        dtype, known = self.dtypes[slot], settled(value.known)
        if known is False:
            value = unknown(dtype)
        else:
            value = Value(value.bits.astype(dtype, copy=False), known)
        if group.lanes is not None:
            value = put(self.registers[slot], value, group.lanes, self.layout.lanes)
        self.registers[slot] = value

    def forget(self, slots: Iterable[int | None], group: Group) -> None:
        """Makes registers unknown in the lanes of a group."""
        for slot in slots:
            self.write(slot, group, unknown(BOOL))

    def count(self, access: Access, part: Part) -> None:
        """Counts what some lanes access."""
        self.meter.count(access, part, self.doubt)

    def lose(self, part: Part, size: int = 0) -> None:
        """Makes memory unknown there, or, without addresses, all of it."""
        for space, storage in self.storages.items():
            if part.space in (space, "generic"):
                storage.forget(part, size)

    def believed(self, value: Value, group: Group) -> Value:
        """The value to store: unknown where it may not be stored at all."""
        if self.doubt is None:
            return value
        return Value(value.bits, ~self.doubt[group.numbers] & value.known)
