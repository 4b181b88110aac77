"""Which threads the lanes of a batch are, and which of them act together."""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from compare.ptx_simulator.simulation import Launch, Triple
from compare.ptx_simulator.values import Bits, Known, Lanes, Mask

WARP = 32
WARPGROUP = 4 * WARP

_KEPT_PARTS = 8  # of a group; each keeps a predicate and the lanes that it holds for


class Layout:
    """The lanes of some blocks that run side by side.

    A block takes a whole number of warps, as on a GPU. In the last of them there may be
    lanes that are no thread.

    Attributes:
        launch: what the blocks are from.
        blocks: their numbers in it, counted along x first.
        lanes_per_block: those that are no thread included.
        lanes: those of all blocks.
        cluster_size: blocks of a cluster, which are neighbours if it has several.
    """

    def __init__(self, launch: Launch, blocks: Sequence[int]) -> None:
        """Lays the blocks out one behind the other."""
        self.launch = launch
        self.blocks = np.array(blocks, np.int64)
        self.lanes_per_block = -(-launch.threads_per_block // WARP) * WARP
        self.lanes = len(blocks) * self.lanes_per_block
        self.cluster_size = math.prod(launch.cluster)

    @cached_property
    def block_of_lane(self) -> Lanes:
        """The place among `blocks` of each lane's block."""
        return np.repeat(np.arange(len(self.blocks)), self.lanes_per_block)

    @cached_property
    def thread_of_lane(self) -> Lanes:
        """The number of each lane in its block, counted along x first."""
        return np.tile(np.arange(self.lanes_per_block), len(self.blocks))

    @cached_property
    def all_lanes(self) -> "Group":
        """All lanes, also those that are no thread."""
        return Group(None, self)

    def everyone(self) -> "Group":
        """All threads."""
        threads = self.launch.threads_per_block
        if threads == self.lanes_per_block:
            return self.all_lanes
        return Group(np.flatnonzero(self.thread_of_lane < threads), self)

    def coordinates(self, lane: int) -> tuple[Triple, Triple]:
        """The block and the thread in it that a lane is."""
        block, thread = divmod(lane, self.lanes_per_block)
        return (
            _coordinates(int(self.blocks[block]), self.launch.grid),
            _coordinates(thread, self.launch.block),
        )


class Group:
    """Lanes that execute an instruction together: some of a batch, or all of them.

    Attributes:
        lanes: their numbers, ascending; None stands for all.
        layout: of the batch.
        size: how many there are.
    """

    def __init__(self, lanes: Lanes | None, layout: Layout) -> None:
        """Makes a group; `lanes` is kept, not copied."""
        self.lanes = lanes
        self.layout = layout
        self.size = layout.lanes if lanes is None else len(lanes)
        # With each predicate, so that it is kept alive and its id stays its own.
        self._parts: dict[tuple[int, bool], tuple[Bits, Group | None]] = {}

    def select(self, chosen: Mask) -> "Group | None":
        """Those that are chosen; None if there are none."""
        number = np.count_nonzero(chosen)  # in one step, and a quick one
        if number == chosen.size:
            return self
        if chosen.size == 1 or not number:
            return None
        return Group(self.numbers[chosen], self.layout)

    def split(self, kinds: Bits) -> Iterator[tuple[int, "Group"]]:
        """The lanes of each kind, with the kind."""
        if np.count_nonzero(kinds == kinds[0]) == kinds.size:  # as it mostly is
            yield int(kinds[0]), self
            return
        for kind in np.unique(kinds):
            if part := self.select(kinds == kind):
                yield int(kind), part

    def union(self, other: "Group | None") -> "Group":
        """The lanes of both, which have none in common."""
        if other is None:
            return self
        if self.size + other.size == self.layout.lanes:
            return self.layout.all_lanes
        lanes = np.concatenate([self.numbers, other.numbers])
        return Group(np.sort(lanes), self.layout)

    def without(self, part: "Group | None") -> "Group | None":
        """The lanes that are not in a part of the group; None if there are none."""
        if part is None:
            return self
        return None if part is self else self.select(~part.members[self.numbers])

    def where(self, predicate: Bits, *, negated: bool) -> "Group | None":
        """Those for which a register is true, or false; it is given for all lanes.

        The last answers are kept: compilers put the same predicate on many
        instructions in a row.
        """
        key = id(predicate), negated
        if key in self._parts:
            return self._parts[key][1]
        chosen = predicate
        if self.lanes is not None and predicate.size > 1:
            chosen = predicate[self.lanes]
        part = self.select(~chosen if negated else chosen)
        if len(self._parts) == _KEPT_PARTS:
            self._parts.clear()
        self._parts[key] = (predicate, part)
        return part

    @property
    def are_many(self) -> bool:
        """Whether they are some of the batch's lanes, and not few of them."""
        return self.lanes is not None and 4 * self.size > self.layout.lanes

    @cached_property
    def numbers(self) -> Lanes:
        """The lanes, also if they are all."""
        return np.arange(self.layout.lanes) if self.lanes is None else self.lanes

    @cached_property
    def blocks(self) -> Lanes:
        """For each lane of the group the place of its block in the layout."""
        return self.layout.block_of_lane[self.numbers]

    @cached_property
    def members(self) -> Mask:
        """For each lane of the batch, whether it is in the group."""
        members = np.zeros(self.layout.lanes, np.bool_)
        members[self.lanes] = True
        return members

    @cached_property
    def warp_numbers(self) -> Lanes:
        """The warps of the batch that have a lane in the group."""
        return np.flatnonzero(self.members.reshape(-1, WARP).any(axis=1))

    @cached_property
    def warps(self) -> int:
        """The number of warps that have a lane in the group."""
        return len(self.warp_numbers)

    @cached_property
    def warps_of_first_block(self) -> int:
        """A bit for each warp of the batch's first block that has a lane here."""
        numbers = self.warp_numbers[
            self.warp_numbers < self.layout.lanes_per_block // WARP
        ]
        return sum(1 << int(each) for each in numbers)

    @cached_property
    def row(self) -> Lanes:
        """For each lane of the group, the place of its warp among `warp_numbers`."""
        return np.searchsorted(self.warp_numbers, self.numbers // WARP)

    @cached_property
    def column(self) -> Lanes:
        """For each lane of the group, its place in its warp."""
        return self.numbers & WARP - 1

    @cached_property
    def is_present(self) -> Mask:
        """For each warp of the group, whether each of its lanes is in the group."""
        return self.by_warp(np.ones(1, np.bool_))

    @cached_property
    def present(self) -> Bits:
        """For each warp of the group, a bit for each lane that is in the group."""
        return self.bits_by_warp(True)

    def by_warp(self, values: Bits) -> Bits:
        """One row for each warp; zero stands where a lane is not in the group."""
        if self.lanes is None:
            return np.broadcast_to(values, self.size).reshape(-1, WARP)
        rows = np.zeros((self.warps, WARP), values.dtype)
        rows[self.row, self.column] = values
        return rows

    def bits_by_warp(self, predicate: Known) -> Bits:
        """For each warp a bit for each lane of the group for which it is true."""
        rows = self.by_warp(np.asarray(predicate))
        return np.packbits(rows, axis=1, bitorder="little").view(np.uint32).reshape(-1)

    def in_all_of_warp(self, predicate: Known) -> Mask:
        """For each lane whether it is true for all lanes of the group in its warp."""
        in_all: Mask = self.bits_by_warp(predicate) == self.present
        return in_all[self.row]

    @cached_property
    def repetitions(self) -> int:
        """The number of blocks, if the group has the same lanes of each; else 1."""
        blocks = len(self.layout.blocks)
        if self.size % blocks:
            return 1
        by_block = self.numbers.reshape(blocks, -1)
        starts = np.arange(blocks)[:, np.newaxis] * self.layout.lanes_per_block
        return blocks if np.array_equal(by_block, starts + by_block[0]) else 1


def _coordinates(number: int, sizes: Triple) -> Triple:
    rest, x = divmod(number, sizes[0])
    z, y = divmod(rest, sizes[1])
    return x, y, z
