"""Whether blocks of a cluster live as long as others reach into their shared memory.

A block must not end before another one has written there for the last time, has read
from there, or has arrived at an mbarrier there. One of its own threads has to know of
that before it ends: it has waited for an mbarrier that has been told, or at the
barrier of the cluster.
"""

from __future__ import annotations

import numpy as np

from compare.ptx_simulator.group import WARP, Group, Layout
from compare.ptx_simulator.races import Actor, Races, Tell
from compare.ptx_simulator.values import Bits, Lanes


class Lives:
    """How far others have reached into each block, and what that knew at its end."""

    def __init__(self, layout: Layout, races: Races, tell: Tell) -> None:
        """Begins with blocks that nobody has reached into.

        Args:
            layout: of the batch.
            races: knows what every warp has been told.
            tell: takes what is found.
        """
        self._layout = layout
        self._races = races
        self._tell = tell
        shape = len(layout.blocks), races.units
        # By block and unit: its clock when it reached into the block last, the
        # instruction and the lane that did, and what the block knew of that clock.
        self._reached = np.zeros(shape, np.int32)
        self._index = np.zeros(shape, np.int32)
        self._lane = np.zeros(shape, np.int32)
        self._known = np.zeros(shape, np.int32)

    @classmethod
    def of(cls, layout: Layout, races: Races | None, tell: Tell) -> Lives | None:
        """None where blocks are alone, or nothing is known of races."""
        if races is None or layout.cluster_size == 1:
            return None
        return cls(layout, races, tell)

    def reach(self, actor: Actor, group: Group, owners: Lanes) -> None:
        """Lanes reach, or will, into blocks: one for each access of the actor."""
        others = np.flatnonzero(group.blocks != owners)
        blocks, units = owners[others], actor.units[others]
        clocks: Bits = actor.told[actor.rows[others], units]
        self._reached[blocks, units] = clocks
        self._index[blocks, units] = actor.index
        self._lane[blocks, units] = actor.lanes[others]

    def end(self, group: Group) -> None:
        """Threads end, with all that their warps have been told."""
        for warp in group.warp_numbers.tolist():
            block = warp * WARP // self._layout.lanes_per_block
            known = self._known[block]
            np.maximum(known, self._races.told(warp), out=known)

    def look(self) -> None:
        """Looks, when all have ended, who may have reached into a block too late."""
        for block, unit in np.argwhere(self._reached > self._known).tolist():
            rank = block % self._layout.cluster_size
            what = f"reaches into block {rank} of the cluster, which may have ended"
            index, lane = self._index[block, unit], self._lane[block, unit]
            self._tell(int(index), int(lane), what, None)
