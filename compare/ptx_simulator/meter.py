"""Adds up the accesses to memory of all blocks that are run."""

import numpy as np

from compare.ptx_simulator.bounds import Access, Bounds
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


class Meter:
    """Counts accesses, and looks whether they are within bounds."""

    def __init__(self, launch: Launch, bounds: Bounds, *, counts_stores: bool) -> None:
        """Starts from nothing; counts the stores to each byte only where asked for."""
        self._bounds = bounds
        self.are_indices = self._bounds.are_indices
        self.store_counts = (
            {each.name: np.zeros(each.bytes, np.uint32) for each in launch.tensors}
            if counts_stores
            else {}
        )
        self._tallies: dict[tuple[int, str, bool, str], MemoryAccess] = {}

    @property
    def out_of_bounds(self) -> list[OutOfBounds]:
        """The first accesses of each instruction that are."""
        return self._bounds.out_of_bounds

    def accesses(self) -> tuple[MemoryAccess, ...]:
        """All there were, by instruction."""
        return tuple(self._tallies[key] for key in sorted(self._tallies))

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
            for tensor, lanes in self._bounds.by_tensor(part, part.addresses):
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
        offsets, outside = self._bounds.look_in_tensor(
            access, part, tensor, lengths, doubt
        )
        if access.is_store and self.store_counts:
            self._count_stores(tensor.name, offsets[~outside], lengths[~outside])

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
        self._bounds.look_in_shared(access, group, offsets, doubt)

    def _tally(self, access: Access, part: Part, argument: str = "") -> MemoryAccess:
        key = access.index, part.space, access.is_store, argument
        if key not in self._tallies:
            self._tallies[key] = MemoryAccess(*key, access.bytes_per_thread)
        self._tallies[key].requests += part.group.warps
        return self._tallies[key]

    def _count_stores(self, name: str, offsets: Lanes, lengths: Lanes) -> None:
        for length in np.unique(lengths):
            starts = offsets[lengths == length]
            places = starts[:, np.newaxis] + np.arange(length)
            np.add.at(self.store_counts[name], places, 1)
