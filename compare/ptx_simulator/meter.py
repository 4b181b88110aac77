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
from compare.ptx_simulator.spaces import Part
from compare.ptx_simulator.values import Lanes, Mask

# Tensors lie below, variables of the PTX and the other spaces above.
END_OF_TENSORS = 1 << 59

_TOLD_THREADS = 8  # of an instruction that goes out of bounds; more would add nothing


@dataclass(frozen=True)
class Access:
    """A memory instruction, whatever the addresses."""

    index: int  # of the instruction in the listing
    is_store: bool  # whether it writes
    bytes_per_thread: int  # that it moves at most


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

    def are_indices(self, part: Part) -> bool:
        """Whether a tensor of indices lies wherever these lanes access."""
        if part.space != "global" or part.addresses is None:
            return False
        first, last = part.addresses.min(), part.addresses.max()
        return any(
            each.address <= first and last < each.address + each.bytes
            for each in self._tensors
            if each and each.holds_indices
        )

    def count(self, access: Access, part: Part, doubt: Mask | None) -> None:
        """Counts what lanes access in a space.

        Args:
            access: the instruction.
            part: the lanes.
            doubt: which lanes of the batch may not be there at all; None if all are.
        """
        group, width = part.group, access.bytes_per_thread
        if part.addresses is None:
            tally = self._tally(access, part)
            tally.bytes += group.size * width
            tally.unknown += group.warps
        elif part.space == "global":
            for tensor, lanes in self._by_tensor(part, part.addresses):
                self._count_global(access, lanes, tensor, doubt)
        elif part.space == "shared":
            self._count_shared(access, part, part.addresses, doubt)
        elif part.space == "local":
            tally = self._tally(access, part)
            tally.bytes += group.size * width
            tally.sectors += local_sectors(
                group.row, group.column, part.addresses, width
            )
            bytes_of_warps = np.bincount(group.row) * width
            tally.ideal_sectors += int((-(-bytes_of_warps // SECTOR_BYTES)).sum())

    def _count_global(
        self,
        access: Access,
        part: Part,
        tensor: TensorArgument | None,
        doubt: Mask | None,
    ) -> None:
        """Counts ranges of bytes of a tensor, one or a row of them for each lane."""
        tally = self._tally(access, part, tensor.name if tensor else "")
        group, starts, lengths = part.group, part.addresses, part.sizes
        assert starts is not None
        if lengths is None:
            lengths = np.full(group.size, access.bytes_per_thread)
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
        if not is_row:
            self._keep_addresses(tally, group, starts)
        offsets = starts - tensor.address
        outside = (offsets < 0) | (offsets + lengths > tensor.bytes)
        outside &= lengths > 0
        if access.is_store and self.store_counts:
            self._count_stores(tensor.name, offsets[~outside], lengths[~outside])
        if is_row:  # of which the first that is outside tells
            first = outside.argmax(axis=1)
            offsets = offsets[np.arange(group.size), first]
            outside = outside[np.arange(group.size), first]
        self._tell(access, tensor.name, group, offsets, outside, doubt)

    def _keep_addresses(
        self, tally: MemoryAccess, group: Group, addresses: Lanes
    ) -> None:
        tally.address_bits |= int(np.bitwise_or.reduce(addresses))
        if group.layout.blocks[0] == 0:
            if tally.first_addresses is None:
                tally.first_addresses = np.full(group.layout.lanes, -1)
            is_new = tally.first_addresses[group.numbers] < 0
            tally.first_addresses[group.numbers[is_new]] = addresses[is_new]

    def _count_shared(
        self, access: Access, part: Part, offsets: Lanes, doubt: Mask | None
    ) -> None:
        group, width = part.group, access.bytes_per_thread
        tally = self._tally(access, part)
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
        self._tell(access, "shared memory", group, offsets, outside, doubt)

    def _tally(self, access: Access, part: Part, argument: str = "") -> MemoryAccess:
        key = access.index, part.space, access.is_store, argument
        if key not in self._tallies:
            self._tallies[key] = MemoryAccess(*key, access.bytes_per_thread)
        self._tallies[key].requests += part.group.warps
        return self._tallies[key]

    def _by_tensor(
        self, part: Part, addresses: Lanes
    ) -> Iterator[tuple[TensorArgument | None, Part]]:
        """The tensors that are accessed, and by which lanes."""
        addresses = addresses.reshape(part.group.size, -1)[:, 0]
        ends = np.array([addresses.min(), addresses.max()])
        first, last = np.searchsorted(self._borders, ends, side="right")
        if first == last:
            yield self._tensors[first], part
            return
        places = np.searchsorted(self._borders, addresses, side="right")
        for place, lanes in part.split(places):
            yield self._tensors[place], lanes

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
        doubt: Mask | None,
    ) -> None:
        """Notes the first accesses out of bounds, unless these are in doubt."""
        if doubt is not None:
            outside = outside & ~doubt[group.numbers]
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
