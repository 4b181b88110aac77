"""Which lanes may not be where they seem to be, because a branch was unknown."""

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.program import Program
from compare.ptx_simulator.values import Mask


class Doubts:
    """Follows lanes from an unknown branch, or predicate, to where its ways meet."""

    def __init__(self, program: Program, batch: Batch) -> None:
        """Begins without doubts; keeps the batch's `doubt` up to date."""
        self._program = program
        self._batch = batch
        self._lanes: dict[int, Mask] = {}  # in doubt, by the branch that is to blame
        self._meetings: dict[int, tuple[int, set[int]]] = {}

    def begin(self, branch: int, group: Group) -> None:
        """From here on it is unknown whether these lanes went the right way."""
        if branch not in self._meetings:
            self._meetings[branch] = self._program.meeting_point(branch)
        self._lanes[branch] = group.members | self._lanes.get(branch, np.False_)
        self._update()

    def settle(self, place: int, group: Group) -> None:
        """Ends doubts where the ways meet; what was written in between is unknown."""
        for branch, lanes in list(self._lanes.items()):
            meeting, slots = self._meetings[branch]
            settled = group.select(lanes[group.numbers]) if meeting == place else None
            if settled is None:
                continue
            self._batch.forget(slots, settled)
            left = lanes & ~settled.members
            if left.any():
                self._lanes[branch] = left
            else:
                del self._lanes[branch]
            self._update()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._lanes)

    def _update(self) -> None:
        masks = list(self._lanes.values())
        self._batch.doubt = np.logical_or.reduce(masks) if masks else None
