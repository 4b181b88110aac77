"""The barriers at which threads of a block wait for each other."""

import numpy as np

from compare.ptx_simulator.group import Group, Layout
from compare.ptx_simulator.races import Races
from compare.ptx_simulator.values import Lanes, Mask

_BARRIERS = 16  # of a block
ALL_THREADS = -1  # that are still there, as what a barrier waits for
_NOWHERE = -1


class Barriers:
    """All barriers of all blocks of a batch."""

    def __init__(self, layout: Layout, races: Races | None) -> None:
        """Begins with nobody there; tells who is ordered by the barriers."""
        self._layout = layout
        self._races = races
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

    def waiting(self) -> list[tuple[int, Group]]:
        """Who waits, with the instruction that brought them there."""
        group = self._layout.all_lanes.select(self._barrier != _NOWHERE)
        return list(group.split(self._place[group.numbers])) if group else []

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
        if self._races:
            for number, part in group.split(barrier):
                self._races.send(("barrier", number), part)
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
        needed: Lanes | int = self._layout.lanes_per_block
        if not (alive.all() and (self._threads < 0).all()):
            block = self._layout.block_of_lane
            in_block = np.bincount(block[alive], minlength=len(self._layout.blocks))
            needed = np.where(self._threads < 0, in_block[block], self._threads)
        is_open = np.zeros(len(self._arrived), np.bool_)
        is_open[self._barrier[waits & (self._arrived[self._barrier] >= needed)]] = True
        free = waits & is_open[self._barrier]
        self._arrived[is_open] = 0
        barriers = self._barrier.copy()
        self._barrier[free] = _NOWHERE
        freed = self._layout.all_lanes.select(free)
        if self._races and freed:
            for number, part in freed.split(barriers[freed.numbers]):
                self._races.receive(("barrier", number), part)
                self._races.forget(("barrier", number))
        return list(freed.split(self._place[freed.numbers])) if freed else []


class ClusterBarriers:
    """The barrier of each cluster, at which a thread arrives first, and waits later."""

    def __init__(self, layout: Layout, races: Races | None) -> None:
        """Begins with nobody there; tells who is ordered by the barriers."""
        self._races = races
        self._cluster = layout.block_of_lane // layout.cluster_size
        clusters = len(layout.blocks) // layout.cluster_size
        self._phase = np.zeros(clusters, np.int64)  # how many are over
        self._has_arrived = np.zeros(layout.lanes, np.bool_)
        self._awaited = np.zeros(layout.lanes, np.int64)  # the phase to be over

    def arrive(self, group: Group) -> None:
        """Brings lanes there; they go on."""
        lanes = group.numbers
        if self._races:
            for cluster, part in group.split(self._cluster[lanes]):
                phase = int(self._phase[cluster])
                self._races.send(("cluster", cluster, phase), part)
        self._has_arrived[lanes] = True
        self._awaited[lanes] = self._phase[self._cluster[lanes]] + 1

    def are_over(self, group: Group, alive: Mask) -> Mask:
        """For whom the phase is over that it has arrived at."""
        missing = alive & ~self._has_arrived
        is_over = np.bincount(self._cluster[missing], minlength=len(self._phase)) == 0
        is_over &= np.bincount(self._cluster[alive], minlength=len(self._phase)) > 0
        self._phase += is_over
        self._has_arrived &= ~is_over[self._cluster]
        lanes = group.numbers
        over: Mask = self._phase[self._cluster[lanes]] >= self._awaited[lanes]
        if self._races and (through := group.select(over)):
            for cluster, part in through.split(self._cluster[through.numbers]):
                phase = int(self._awaited[part.numbers[0]]) - 1
                self._races.receive(("cluster", cluster, phase), part)
        return over
