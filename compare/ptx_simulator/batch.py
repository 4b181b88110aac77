"""The state of all threads of some blocks: registers, memory, what is in doubt."""

from collections.abc import Sequence

import numpy as np

from compare.ptx_simulator.group import Group, Layout
from compare.ptx_simulator.meter import Meter
from compare.ptx_simulator.storage import Storage
from compare.ptx_simulator.values import (
    Dtype,
    Mask,
    Value,
    put,
    take,
    unknown,
    unsigned,
)


class Batch:
    """Blocks that run side by side; one lane is one thread.

    Attributes:
        layout: which lane is which thread.
        dtypes: of the registers, by slot.
        registers: by slot.
        shared: shared memory, by block.
        local: local memory, by lane.
        meter: what counts accesses to memory.
        alive: of each lane, whether it is a thread that has not come to its end.
        doubt: the lanes that may not execute at all what they execute, because a branch
            or a predicate before it was unknown; None where there are none.
    """

    def __init__(
        self,
        layout: Layout,
        dtypes: Sequence[Dtype],
        shared_bytes: int,
        local_bytes: int,
        meter: Meter,
    ) -> None:
        """Begins with nothing in registers and memory.

        Args:
            layout: which lane is which thread.
            dtypes: of the registers, by slot.
            shared_bytes: shared memory of a block.
            local_bytes: local memory of a thread.
            meter: what counts accesses to memory.
        """
        self.layout = layout
        self.registers = [unknown(dtype) for dtype in dtypes]
        self.shared = Storage(len(layout.blocks), shared_bytes)
        self.local = Storage(layout.lanes, local_bytes)
        self.meter = meter
        self.alive = layout.everyone().members.copy()
        self.doubt: Mask | None = None
        self.dtypes = dtypes

    def read(self, slot: int, group: Group) -> Value:
        """What a register holds in the lanes of a group."""
        return take(self.registers[slot], group.lanes)

    def write(self, slot: int, group: Group, value: Value) -> None:
        """Puts a value of a group's lanes into a register."""
        bits = unsigned(value.bits).astype(self.dtypes[slot], copy=False)
        value = Value(bits, value.known)
        if group.lanes is not None:
            old = self.registers[slot]
            value = put(old, value, group.lanes, self.layout.lanes)
        self.registers[slot] = value

    def forget(self, slot: int, group: Group) -> None:
        """What a register holds in the lanes of a group is unknown from now on."""
        if group.lanes is None:
            self.registers[slot] = unknown(self.dtypes[slot])
        elif self.registers[slot].known is not False:
            self.write(slot, group, unknown(self.dtypes[slot]))

    def doubtful(self, group: Group) -> Mask | None:
        """Which lanes of a group are in doubt; None if none is."""
        if self.doubt is None:
            return None
        doubtful = self.doubt if group.lanes is None else self.doubt[group.lanes]
        return doubtful if doubtful.any() else None

    def believed(self, value: Value, group: Group) -> Value:
        """The value to store: unknown where it may not be stored at all."""
        doubtful = self.doubtful(group)
        if doubtful is None:
            return value
        return Value(value.bits, ~doubtful & np.asarray(value.known))
