"""The state of all threads of some blocks: registers, memory, what is in doubt."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compare.ptx_simulator.asynchronous import Deliveries, Queue
from compare.ptx_simulator.bounds import Access, Watch
from compare.ptx_simulator.contents import Contents
from compare.ptx_simulator.group import Group, Layout
from compare.ptx_simulator.lives import Lives
from compare.ptx_simulator.meter import Meter
from compare.ptx_simulator.phases import Mbarriers
from compare.ptx_simulator.races import Races
from compare.ptx_simulator.register_use import RegisterUse
from compare.ptx_simulator.simulation import Fault, TensorMap
from compare.ptx_simulator.spaces import OTHER_BLOCK_BITS, WINDOW_BYTES, Addresses, Part
from compare.ptx_simulator.storage import Storage
from compare.ptx_simulator.tensor_core_memory import TensorCoreMemory
from compare.ptx_simulator.values import (
    BOOL,
    Dtype,
    Known,
    Lanes,
    Mask,
    Value,
    merged,
    put,
    settled,
    take,
    unknown,
)

# What a fault says of an instruction whose results would have been needed.
NOT_SIMULATED = "is not simulated"


@dataclass(frozen=True)
class Memory:
    """What a launch brings along, the same for all batches.

    Attributes:
        parameters: by name.
        tensor_maps: among them, by generic address.
        contents: what tensors hold; None if that is unknown.
        constants: what constant memory holds, likewise.
        is_late: whether asynchronous work is put off.
        faults: what has been done that must not be.
    """

    parameters: Mapping[str, int]
    tensor_maps: Mapping[int, TensorMap]
    contents: Contents | None
    constants: Contents
    is_late: bool
    faults: list[Fault]


class Batch:
    """Blocks that run side by side; one lane is one thread.

    Attributes:
        layout: which lane is which thread.
        dtypes: of the registers, by slot.
        registers: by slot.
        memory: what the launch brings along.
        storages: by space: shared memory of every block, local memory of every lane;
            and global and constant memory, where there are contents.
        queues: by kind, asynchronous work that lanes commit in groups.
        deliveries: asynchronous work that ends in an mbarrier.
        mbarriers: in shared memory.
        tensor_memory: of the blocks.
        races: looks for them; None in the fast mode.
        lives: looks which blocks of clusters end too early; None without clusters, and
            in the fast mode.
        register_use: looks who uses registers of products too early; likewise.
        meter: counts accesses to memory, or looks whether they are within bounds.
        alive: for each lane, whether it is a thread that has not come to its end.
        n_alive: how many are.
        has_given_registers: for each lane, whether it did so last, by `setmaxnreg`.
        doubt: the lanes that may be where they are by mistake, because a branch or a
            predicate was unknown; None if there are none.
    """

    def __init__(
        self,
        layout: Layout,
        dtypes: Sequence[Dtype],
        addresses: Addresses,
        meter: Meter | Watch,
        memory: Memory,
    ) -> None:
        """Begins with nothing in registers and memory of the blocks."""
        self.layout = layout
        self.dtypes = dtypes
        self.registers = [unknown(dtype) for dtype in dtypes]
        self.memory = memory
        self.storages: dict[str, Storage | Contents] = {
            "local": Storage(
                layout.lanes, addresses.local_bytes, lambda group: group.numbers
            ),
            "shared": Storage(
                len(layout.blocks),
                addresses.shared_bytes_of(layout.launch),
                lambda group: group.blocks,
                self.reach,
                keeps_one=memory.contents is not None,
            ),
        }
        if memory.contents is not None:
            self.storages["global"] = memory.contents
            self.storages["const"] = memory.constants
        self.queues = {
            kind: Queue(layout.lanes, is_late=memory.is_late)
            for kind in ("copies", "bulk copies", "wgmma")
        }
        self.deliveries = Deliveries(is_late=memory.is_late)
        self.mbarriers = Mbarriers(len(layout.blocks))
        self.tensor_memory = TensorCoreMemory(
            len(layout.blocks), layout.lanes, is_late=memory.is_late
        )
        self.races = (
            Races(
                layout,
                self.shared.stride,
                self._tell_lane,
                # Others do not mix them, and have so many warps that it would be dear.
                kinds=4 if memory.tensor_maps else 1,
            )
            if memory.is_late
            else None
        )
        self.lives = Lives.of(layout, self.races, self._tell_lane)
        self.register_use = (
            RegisterUse(layout.lanes, self.queues["wgmma"], self._tell_lane)
            if memory.is_late
            else None
        )
        self.meter = meter
        self.alive = layout.everyone().members.copy()
        self.n_alive = layout.everyone().size
        self.has_given_registers = np.zeros(layout.lanes, np.bool_)
        self.doubt: Mask | None = None

    def end(self, group: Group) -> None:
        """Threads come to their end."""
        self.alive &= ~group.members
        self.n_alive -= group.size
        if self.lives:
            self.lives.end(group)

    @property
    def has_contents(self) -> bool:
        """Whether tensors hold something, so that everything is known."""
        return self.memory.contents is not None

    @property
    def shared(self) -> Storage:
        """Shared memory of every block."""
        storage = self.storages["shared"]
        assert isinstance(storage, Storage)
        return storage

    def reach(self, owners: Lanes, addresses: Lanes) -> tuple[Lanes, Lanes]:
        """Whose shared memory an address leads to, and where in it, by lane.

        The uppermost bits tell which block of the cluster, counted from 1; without
        them it is the own one. Blocks of a cluster are neighbours in the batch.
        """
        ranks = addresses >> OTHER_BLOCK_BITS
        if not ranks.any():
            return owners, addresses
        size = self.layout.cluster_size
        others = owners // size * size + ranks - 1
        is_other = (ranks > 0) & (ranks <= size)
        inside = addresses & (1 << OTHER_BLOCK_BITS) - 1
        return np.where(is_other, others, owners), np.where(is_other, inside, addresses)

    def shared_places(
        self, index: int, group: Group, address: Value
    ) -> tuple[Lanes, Lanes] | None:
        """Whose shared memory lanes name, and where in it; None if that is unknown.

        Args:
            index: of the instruction, which is told of an unknown address.
            group: the lanes.
            address: that they name, in shared memory or generic.
        """
        bits, known = address
        if not np.all(known):
            self.tell(index, group, "names shared memory by an unknown address")
            return None
        addresses = np.broadcast_to(bits, group.size).astype(np.int64)
        return self.reach(group.blocks, addresses % WINDOW_BYTES)

    @property
    def has_faults(self) -> bool:
        """Whether there is something to tell."""
        return bool(self.memory.faults or self.meter.out_of_bounds)

    def tell(self, index: int, group: Group, what: str) -> None:
        """Notes what the first of some lanes does that it must not."""
        self._tell_lane(index, int(group.numbers[0]), what)

    def _tell_lane(
        self, index: int, lane: int, what: str, other: int | None = None
    ) -> None:
        """Notes what a lane does that it must not, once for each instruction."""
        told = {each.index for each in self.memory.faults}
        told.update(each.index for each in self.meter.out_of_bounds)
        if self.has_contents and index not in told:
            block, thread = self.layout.coordinates(lane)
            self.memory.faults.append(Fault(index, what, block, thread, other))

    def tell_unwritten(
        self,
        index: int,
        group: Group,
        addresses: Lanes,
        known: Known,
        space: str = "shared",
    ) -> None:
        """Notes a read of what nothing was written to.

        Args:
            index: of the instruction.
            group: the lanes.
            addresses: that they read, in the space.
            known: whether all of it was written, for each lane or for all.
            space: `shared`, `local` or `global`.
        """
        if known is True or not self.has_contents:
            return
        is_unwritten = ~np.broadcast_to(known, group.size)
        lanes = group.select(is_unwritten)
        if lanes is not None:
            place = int(np.broadcast_to(addresses, group.size)[is_unwritten][0])
            where = "" if space == "global" else f" at byte {place}"
            self.tell(index, lanes, f"reads {space} memory{where}, never written")

    def tell_undefined(
        self,
        index: int,
        group: Group,
        known: Known,
        what: str = "stores what nothing defines",
    ) -> None:
        """Notes that lanes put what nothing defines where others will read it.

        Not after another fault, of which it may come.

        Args:
            index: of the instruction.
            group: the lanes.
            known: whether it is defined, for each lane or for all.
            what: they do with it.
        """
        if known is not True and not self.has_faults:
            lanes = group.select(~np.broadcast_to(known, group.size))
            if lanes is not None:
                self.tell(index, lanes, what)

    def read(self, slot: int, group: Group) -> Value:
        """The value of a register in the lanes of a group."""
        return take(self.registers[slot], group.lanes)

    def write(
        self, slot: int | None, group: Group, value: Value, *, are_all: bool = False
    ) -> None:
        """Puts a value of a group's lanes into a register; without a slot, nowhere.

        A wider register is filled up with zeros, or with the sign of signed numbers.

        Args:
            slot: Of the register.
            group: The lanes.
            value: One for each lane of the group, or one for all of them.
            are_all: Whether there is one for each lane of the batch, of which the
                group's are taken.
        """
        if slot is None:
            return
        dtype, known = self.dtypes[slot], settled(value.known)
        if known is False:
            value = unknown(dtype)
        else:
            value = Value(value.bits.astype(dtype, copy=False), known)
        if are_all:
            value = merged(self.registers[slot], value, group.members)
        elif group.lanes is not None:
            value = put(self.registers[slot], value, group.lanes, self.layout.lanes)
        self.registers[slot] = value

    def forget(self, slots: Iterable[int | None], group: Group) -> None:
        """Makes registers unknown in the lanes of a group."""
        for slot in slots:
            self.write(slot, group, unknown(BOOL))

    def let_go(self, slots: Iterable[int]) -> None:
        """Gives the memory of registers back that no thread uses any more."""
        for slot in slots:
            self.registers[slot] = unknown(self.dtypes[slot])

    def count(self, access: Access, part: Part) -> None:
        """Counts what some lanes access, and looks for races."""
        self.meter.count(access, part, self.doubt)
        if self.has_contents:
            self._tell_misaligned(access, part)
        if access.is_plain:
            self.look_for_races(access, part)

    def _tell_misaligned(self, access: Access, part: Part) -> None:
        """Notes an access at no multiple of its width; a bulk copy has none."""
        rest = access.bytes_per_thread - 1
        if part.addresses is None or rest < 1:
            return
        if np.bitwise_or.reduce(part.addresses, axis=None) & rest:
            is_misaligned = part.addresses & rest != 0
            if part.sizes is not None:  # of what is not read the address is free
                is_misaligned &= part.sizes > 0
            lanes = part.group.select(is_misaligned)
            if lanes is not None:
                width = access.bytes_per_thread
                self.tell(access.index, lanes, f"is not at a multiple of {width} bytes")

    def look_for_races(
        self, access: Access, part: Part, changes: Mask | None = None
    ) -> None:
        """Looks whether lanes access shared memory in no order with other warps.

        Args:
            access: the instruction.
            part: the lanes.
            changes: which of them change what is there, if a store's values are known.
        """
        if self.races is None or part.space != "shared" or part.addresses is None:
            return
        width = access.bytes_per_thread
        starts, inside = self.shared.places(part.group.blocks, part.addresses, width)
        actor = self.races.actor(access.index, part.group)
        if self.lives:
            owners, _ = self.reach(part.group.blocks, part.addresses)
            self.lives.reach(actor, part.group, owners)
        if inside is not None:
            starts, actor = starts[inside], actor.select(inside)
            changes = changes if changes is None else changes[inside]
        if access.is_store:
            self.races.write(actor, starts, width, changes)
        else:
            self.races.read(actor, starts, width)

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
