"""The barriers at which threads of a block wait for each other."""

from dataclasses import dataclass, replace

import numpy as np

from compare.ptx_simulator.group import Group, Layout
from compare.ptx_simulator.values import Lanes, Mask

_BARRIERS = 16  # of a block
_ALL_THREADS = -1


@dataclass(frozen=True)
class _Arrived:
    """Lanes that have come to a barrier.

    Attributes:
        place: the instruction that brought them there.
        group: the lanes.
        barrier: for each of them its block and the barrier's number, in one.
        threads: for how many threads the barrier waits.
        waits: whether the lanes wait for the others.
    """

    place: int
    group: Group
    barrier: Lanes
    threads: Lanes
    waits: bool


class Barriers:
    """All barriers of all blocks of a batch."""

    def __init__(self, layout: Layout) -> None:
        """Begins with nobody there."""
        self._layout = layout
        self._arrived: list[_Arrived] = []

    @property
    def are_waited_at(self) -> bool:
        """Whether anybody waits."""
        return any(each.waits for each in self._arrived)

    def arrive(
        self,
        place: int,
        group: Group,
        numbers: Lanes,
        threads: Lanes | None,
        *,
        waits: bool,
    ) -> None:
        """Brings lanes to barriers.

        Args:
            place: the instruction that does it.
            group: the lanes.
            numbers: of the barriers.
            threads: for how many the barriers wait, if not for all of the block.
            waits: whether the lanes wait for the others.
        """
        count = np.full(1, _ALL_THREADS) if threads is None else threads
        self._arrived.append(
            _Arrived(
                place=place,
                group=group,
                barrier=group.blocks * _BARRIERS + numbers,
                threads=np.broadcast_to(count, group.size),
                waits=waits,
            )
        )

    def open(self, alive: Mask) -> list[tuple[int, Group]]:
        """Opens the barriers that enough threads have come to.

        Args:
            alive: of each lane, whether it can still come anywhere.

        Returns:
            Who waited there, with the instruction that brought them there.
        """
        if not self._arrived:
            return []
        in_block = np.bincount(
            self._layout.block_of_lane[alive], minlength=len(self._layout.blocks)
        )
        count = np.bincount(np.concatenate([each.barrier for each in self._arrived]))
        is_open = np.zeros(len(count), np.bool_)
        for each in self._arrived:
            if each.waits:
                everybody = in_block[each.group.blocks]
                needed = np.where(each.threads < 0, everybody, each.threads)
                is_open[each.barrier[count[each.barrier] >= needed]] = True
        free, held = [], []
        for each in self._arrived:
            leaves = is_open[each.barrier]
            leaving, staying = each.group.select(leaves), each.group.select(~leaves)
            if leaving is not None and each.waits:
                free.append((each.place, leaving))
            if staying is not None:
                rest = replace(
                    each,
                    group=staying,
                    barrier=each.barrier[~leaves],
                    threads=each.threads[~leaves],
                )
                held.append(rest)
        self._arrived = held
        return free
