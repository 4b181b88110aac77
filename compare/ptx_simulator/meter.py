"""Adds up the accesses to memory of all blocks that are run."""

import itertools
from collections import Counter
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
from compare.ptx_simulator.values import Lanes, Mask

# Tensors lie below, variables of the PTX and the other spaces above.
END_OF_TENSORS = 1 << 59

_TOLD_THREADS = 8  # of an instruction that goes out of bounds; more would add nothing


@dataclass(frozen=True)
class Access:
    """A memory instruction, whatever the addresses.

    Attributes:
        index: of the instruction in the listing.
        is_store: whether it writes.
        bytes_per_thread: that it moves at most.
    """

    index: int
    is_store: bool
    bytes_per_thread: int


class Meter:
    """Counts accesses, and looks whether they are within bounds."""

    def __init__(
        self, launch: Launch, shared_bytes: int, *, counts_stores: bool
    ) -> None:
        """Starts from nothing; counts the stores to each byte only where asked for."""
        self.out_of_bounds: list[OutOfBounds] = []
        self.store_counts = (
            {each.name: np.zeros(each.bytes, np.uint32) for each in launch.tensors}
            if counts_stores
            else {}
        )
        self._shared_bytes = shared_bytes
        self._tallies: dict[tuple[int, str, bool, str], MemoryAccess] = {}
        self._told: Counter[tuple[int, str]] = Counter()
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
        return tuple(self._tallies[key] for key in sorted(self._tallies))

    def are_indices(self, addresses: Lanes) -> bool:
        """Whether a tensor of indices lies at all of these addresses."""
        ends = addresses.min(), addresses.max()
        return any(
            each.address <= ends[0] and ends[1] < each.address + each.bytes
            for each in self._tensors
            if each and each.holds_indices
        )

    def count(
        self,
        access: Access,
        space: str,
        group: Group,
        addresses: Lanes | None,
        sizes: Lanes | None,
        doubtful: Mask | None,
    ) -> None:
        """Counts what the lanes of a group access in a space.

        Args:
            access: the instruction.
            space: see `MemoryAccess`.
            group: the lanes.
            addresses: one for each of them; or a row for each, which is a request of
                its own; None if they are unknown.
            sizes: the bytes at each address, if not all that the instruction can move.
            doubtful: which of the lanes may not be there at all; None if all are.
        """
        if addresses is None:
            tally = self._tally(access, space, group)
            tally.unknown += group.warps
            tally.bytes += group.size * access.bytes_per_thread
        elif space == "global":
            self._count_global(access, group, addresses, sizes, doubtful)
        elif space == "shared":
            self._count_shared(access, group, addresses, doubtful)
        elif space == "local":
            self._count_local(access, group, addresses)

    def _count_global(
        self,
        access: Access,
        group: Group,
        addresses: Lanes,
        sizes: Lanes | None,
        doubtful: Mask | None,
    ) -> None:
        if sizes is None:
            sizes = np.full(group.size, access.bytes_per_thread)
        for tensor, part, chosen in self._by_tensor(group, addresses):
            in_doubt = None if doubtful is None else doubtful[chosen]
            self._count_ranges(
                access, tensor, part, addresses[chosen], sizes[chosen], in_doubt
            )

    def _count_ranges(
        self,
        access: Access,
        tensor: TensorArgument | None,
        group: Group,
        starts: Lanes,
        lengths: Lanes,
        doubtful: Mask | None,
    ) -> None:
        """Counts ranges of bytes of a tensor, one or a row of them for each lane."""
        tally = self._tally(access, "global", group, tensor.name if tensor else "")
        is_row = starts.ndim == 2
        begin, sizes = (
            each if is_row else group.by_warp(each) for each in (starts, lengths)
        )
        n_bytes, n_sectors = bytes_and_sectors(begin, begin + sizes)
        tally.bytes += int(lengths.sum())
        tally.sectors += int(n_sectors.sum())
        tally.ideal_sectors += int((-(-n_bytes // SECTOR_BYTES)).sum())
        if tensor is None:
            return
        offsets = starts - tensor.address
        outside = (offsets < 0) | (offsets + lengths > tensor.bytes)
        outside &= lengths > 0
        if access.is_store and self.store_counts:
            self._count_stores(tensor.name, offsets[~outside], lengths[~outside])
        if is_row:  # of which the first that is outside tells
            first = outside.argmax(axis=1)
            offsets = offsets[np.arange(group.size), first]
            outside = outside[np.arange(group.size), first]
        self._tell(access, tensor.name, group, offsets, outside, doubtful)

    def _count_shared(
        self, access: Access, group: Group, offsets: Lanes, doubtful: Mask | None
    ) -> None:
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
        self._tell(access, "shared memory", group, offsets, outside, doubtful)

    def _count_local(self, access: Access, group: Group, offsets: Lanes) -> None:
        width = access.bytes_per_thread
        tally = self._tally(access, "local", group)
        tally.bytes += group.size * width
        tally.sectors += local_sectors(group.row, group.column, offsets, width)
        bytes_of_warps = np.bincount(group.row) * width
        tally.ideal_sectors += int((-(-bytes_of_warps // SECTOR_BYTES)).sum())

    def _tally(
        self, access: Access, space: str, group: Group, argument: str = ""
    ) -> MemoryAccess:
        key = access.index, space, access.is_store, argument
        if key not in self._tallies:
            self._tallies[key] = MemoryAccess(*key, access.bytes_per_thread)
        self._tallies[key].requests += group.warps
        return self._tallies[key]

    def _by_tensor(
        self, group: Group, addresses: Lanes
    ) -> Iterator[tuple[TensorArgument | None, Group, Mask | slice]]:
        """The tensors accessed, by which lanes, and which of the group these are."""
        addresses = addresses.reshape(group.size, -1)[:, 0]
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
        doubtful: Mask | None,
    ) -> None:
        """Notes the first accesses out of bounds, unless these are in doubt."""
        if doubtful is not None:
            outside = outside & ~doubtful
        key = access.index, argument
        free = _TOLD_THREADS - self._told[key]
        for place in np.flatnonzero(outside)[:free]:
            self._told[key] += 1
            lane = int(group.numbers[place])
            self.out_of_bounds.append(
                OutOfBounds(
                    access.index,
                    argument,
                    *group.layout.coordinates(lane),
                    int(offsets[place]),
                    access.is_store,
                )
            )
