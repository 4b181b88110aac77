"""Adds up the accesses to memory of all blocks that are run."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from compare.ptx_simulator.group import Group
from compare.ptx_simulator.sectors import (
    SECTOR_BYTES,
    bytes_and_sectors,
    local_sectors,
    wavefronts,
)
from compare.ptx_simulator.simulation import (
    Launch,
    MemoryAccess,
    OutOfBounds,
    TensorArgument,
)
from compare.ptx_simulator.values import Bits, Lanes, Mask

# Tensors lie below, variables of the PTX and the other spaces above.
END_OF_TENSORS = 1 << 59

_TOLD_THREADS = 8  # of an instruction that goes out of bounds; more would add nothing


@dataclass(frozen=True)
class Access:
    """What a memory instruction does, whatever the addresses.

    Attributes:
        index: of the instruction in the listing.
        is_store: whether it writes.
        bytes_per_thread: that it moves at most.
    """

    index: int
    is_store: bool
    bytes_per_thread: int


@dataclass
class _Tally:
    """What an instruction has moved so far; the names are those of `MemoryAccess`."""

    bytes_per_thread: int
    requests: int = 0
    bytes: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    wavefronts: int = 0
    bank_conflicts: int = 0
    unknown: int = 0


class Meter:
    """Counts accesses, and looks whether they are within bounds."""

    def __init__(
        self, launch: Launch, shared_bytes: int, *, counts_stores: bool
    ) -> None:
        """Starts from nothing.

        Args:
            launch: whose tensors are accessed.
            shared_bytes: the shared memory of a block.
            counts_stores: whether to count the stores to each byte of each tensor.
        """
        self.out_of_bounds: list[OutOfBounds] = []
        self.store_counts = (
            {each.name: np.zeros(each.bytes, np.uint32) for each in launch.tensors}
            if counts_stores
            else {}
        )
        self._shared_bytes = shared_bytes
        self._tallies: dict[tuple[int, str, bool, str], _Tally] = {}
        self._told: dict[tuple[int, str], int] = {}
        # An address belongs to the tensor that is nearest.
        tensors = sorted(launch.tensors, key=lambda each: each.address)
        self._tensors: list[TensorArgument | None] = [*tensors, None]
        self._borders = [
            (left.address + left.bytes + right.address) // 2
            for left, right in itertools.pairwise(tensors)
        ]
        if tensors:
            self._borders.append(END_OF_TENSORS)

    def accesses(self) -> tuple[MemoryAccess, ...]:
        """All there were, by instruction."""
        return tuple(
            MemoryAccess(index, space, is_store, argument, **vars(tally))
            for (index, space, is_store, argument), tally in sorted(
                self._tallies.items()
            )
        )

    def are_indices(self, addresses: Lanes) -> bool:
        """Whether a tensor of indices lies at all of these addresses."""
        ends = addresses.min(), addresses.max()
        return any(
            each.address <= ends[0] and ends[1] < each.address + each.bytes
            for each in self._tensors
            if each and each.holds_indices
        )

    def count_unknown(self, access: Access, space: str, group: Group) -> None:
        """Accesses to who knows where."""
        tally = self._tally(access, space, group)
        tally.unknown += group.warps
        tally.bytes += group.size * access.bytes_per_thread

    def count_global(
        self,
        access: Access,
        group: Group,
        addresses: Lanes,
        sizes: Lanes | None,
        doubtful: Mask | None,
    ) -> None:
        """Accesses to global memory.

        Args:
            access: the instruction.
            group: the lanes that access memory.
            addresses: one for each of them.
            sizes: bytes that each of them moves, if not all that the instruction can.
            doubtful: which of the lanes may not be there at all; None if all are.
        """
        if sizes is None:
            sizes = np.full(group.size, access.bytes_per_thread)
        for tensor, part, chosen in self._by_tensor(group, addresses):
            starts, lengths = addresses[chosen], sizes[chosen]
            name = tensor.name if tensor else ""
            tally = self._tally(access, "global", part, name)
            self._add_ranges(tally, part.by_warp(starts), part.by_warp(lengths))
            if tensor:
                offsets = starts - tensor.address
                outside = (offsets < 0) | (offsets + lengths > tensor.bytes)
                outside &= lengths > 0
                if access.is_store and self.store_counts:
                    self._count_stores(name, offsets[~outside], lengths[~outside])
                if doubtful is not None:
                    outside &= ~doubtful[chosen]
                self._tell(access, name, part, offsets, outside)

    def count_boxes(
        self,
        access: Access,
        group: Group,
        tensor_address: int,
        starts: Lanes,
        lengths: Lanes,
        doubtful: Mask | None,
    ) -> None:
        """Boxes of a tensor, of which each lane moves one.

        Args:
            access: the instruction.
            group: the lanes.
            tensor_address: where the tensor begins.
            starts: for each lane the addresses of its box's rows.
            lengths: their bytes.
            doubtful: which of the lanes may not be there at all; None if all are.
        """
        tensor = self._tensors[
            int(np.searchsorted(self._borders, tensor_address, side="right"))
        ]
        name = tensor.name if tensor else ""
        self._add_ranges(self._tally(access, "global", group, name), starts, lengths)
        if tensor is None:
            return
        offsets = starts - tensor.address
        outside = (offsets < 0) | (offsets + lengths > tensor.bytes)
        outside &= lengths > 0
        if access.is_store and self.store_counts:
            self._count_stores(name, offsets[~outside], lengths[~outside])
        if doubtful is not None:
            outside &= ~doubtful[:, np.newaxis]
        first = np.take_along_axis(offsets, outside.argmax(axis=1)[:, np.newaxis], 1)
        self._tell(access, name, group, first[:, 0], np.any(outside, axis=1))

    def count_shared(
        self, access: Access, group: Group, offsets: Lanes, doubtful: Mask | None
    ) -> None:
        """Accesses to shared memory; for the arguments see `count_global`."""
        width = access.bytes_per_thread
        tally = self._tally(access, "shared", group)
        tally.bytes += group.size * width
        # Most kernels do the same in every block, so that one tells of all.
        blocks = group.repetitions
        by_block = offsets.reshape(blocks, -1)
        if not (by_block == by_block[0]).all():
            blocks = 1
        some = slice(group.size // blocks)
        taken, fewest = wavefronts(
            group.row[some], group.column[some], offsets[some], width
        )
        tally.wavefronts += blocks * taken
        tally.bank_conflicts += blocks * (taken - fewest)
        outside = (offsets < 0) | (offsets + width > self._shared_bytes)
        if doubtful is not None:
            outside &= ~doubtful
        self._tell(access, "shared memory", group, offsets, outside)

    def count_local(self, access: Access, group: Group, offsets: Lanes) -> None:
        """Accesses to local memory, the thread's own."""
        width = access.bytes_per_thread
        tally = self._tally(access, "local", group)
        tally.bytes += group.size * width
        tally.sectors += local_sectors(group.row, group.column, offsets, width)
        bytes_of_warps = np.bincount(group.row) * width
        tally.ideal_sectors += int((-(-bytes_of_warps // SECTOR_BYTES)).sum())

    def _tally(
        self, access: Access, space: str, group: Group, argument: str = ""
    ) -> _Tally:
        key = access.index, space, access.is_store, argument
        tally = self._tallies.setdefault(key, _Tally(access.bytes_per_thread))
        tally.requests += group.warps
        return tally

    @staticmethod
    def _add_ranges(tally: _Tally, starts: Bits, lengths: Bits) -> None:
        """Adds one row of ranges of bytes for each request."""
        n_bytes, n_sectors = bytes_and_sectors(starts, starts + lengths)
        tally.bytes += int(lengths.sum())
        tally.sectors += int(n_sectors.sum())
        tally.ideal_sectors += int((-(-n_bytes // SECTOR_BYTES)).sum())

    def _by_tensor(
        self, group: Group, addresses: Lanes
    ) -> Iterator[tuple[TensorArgument | None, Group, Mask | slice]]:
        """The tensors accessed, by which lanes, and which of the group these are."""
        ends = np.array([addresses.min(), addresses.max()])
        first, last = np.searchsorted(self._borders, ends, side="right")
        if first == last:
            yield self._tensors[first], group, slice(None)
            return
        places = np.searchsorted(self._borders, addresses, side="right")
        for place in np.unique(places):
            part = group.select(places == place)
            assert part
            yield self._tensors[place], part, places == place

    def _count_stores(self, name: str, offsets: Lanes, lengths: Lanes) -> None:
        for length in np.unique(lengths):
            starts = offsets[lengths == length]
            places = starts[:, np.newaxis] + np.arange(length)
            np.add.at(self.store_counts[name], places, 1)

    def _tell(
        self,
        access: Access,
        argument: str,
        group: Group,
        offsets: Lanes,
        outside: Mask,
    ) -> None:
        """Notes the first accesses out of bounds."""
        key = access.index, argument
        for place in np.flatnonzero(outside):
            told = self._told.get(key, 0)
            if told == _TOLD_THREADS:
                return
            self._told[key] = told + 1
            block, thread = group.layout.coordinates(int(group.numbers[place]))
            self.out_of_bounds.append(
                OutOfBounds(
                    access.index,
                    argument,
                    block,
                    thread,
                    int(offsets[place]),
                    access.is_store,
                )
            )
