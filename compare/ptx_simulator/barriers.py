"""The barriers at which threads of a block wait for each other."""

import numpy as np

from compare.ptx_simulator.group import Group, Layout
from compare.ptx_simulator.values import Lanes, Mask

_BARRIERS = 16  # of a block
ALL_THREADS = -1  # that are still there, as what a barrier waits for
_NOWHERE = -1


class Barriers:
    """All barriers of all blocks of a batch."""

    def __init__(self, layout: Layout) -> None:
        """Begins with nobody there."""
        self._layout = layout
        self._arrived = np.zeros(len(layout.blocks) * _BARRIERS, np.int64)
        # By lane: the barrier it waits at, the threads that this waits for, and the
        # instruction that brought the lane there.
        self._barrier = np.full(layout.lanes, _NOWHERE)
        self._threads = np.zeros(layout.lanes, np.int64)
        self._place = np.zeros(layout.lanes, np.int64)

    @property
    def are_waited_at(self) -> bool:
        """Whether anybody waits."""
        return bool((self._barrier != _NOWHERE).any())

    def arrive(
        self,
        place: int,
        group: Group,
        numbers: Lanes,
        threads: Lanes | int,
        *,
        waits: bool,
    ) -> None:
        """Brings lanes to barriers.

        Args:
            place: the instruction that does it.
            group: the lanes.
            numbers: of the barriers.
            threads: for how many the barriers wait.
            waits: whether the lanes wait for the others.
        """
        barrier = group.blocks * _BARRIERS + numbers % _BARRIERS
        self._arrived += np.bincount(barrier, minlength=len(self._arrived))
        if waits:
            self._barrier[group.numbers] = barrier
            self._threads[group.numbers] = threads
            self._place[group.numbers] = place

    def open(self, alive: Mask) -> list[tuple[int, Group]]:
        """Opens the barriers that enough threads, of those alive, have come to.

        Returns:
            Who waited there, with the instruction that brought them there.
        """
        waits = self._barrier != _NOWHERE
        block = self._layout.block_of_lane
        in_block = np.bincount(block[alive], minlength=len(self._layout.blocks))
        needed = np.where(self._threads < 0, in_block[block], self._threads)
        is_open = np.zeros(len(self._arrived), np.bool_)
        is_open[self._barrier[waits & (self._arrived[self._barrier] >= needed)]] = True
        free = waits & is_open[self._barrier]
        self._arrived[is_open] = 0
        self._barrier[free] = _NOWHERE
        freed = self._layout.all_lanes.select(free)
        return list(freed.split(self._place[freed.numbers])) if freed else []
