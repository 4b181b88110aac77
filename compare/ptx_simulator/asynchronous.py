"""Work that threads start and wait for later: copies, and products of warpgroups.

On a GPU it is done at some time in between. The fast mode does it at once. The checking
mode puts it off to the last moment that the program allows: so what does not wait, or
changes the source too early, gets something else.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from compare.ptx_simulator.group import Group
from compare.ptx_simulator.values import Lanes, Mask

# Does the work for those of the lanes that started it for which a mask is true.
Act = Callable[[Mask], None]

_OPEN = -1  # the number of the group of what has not been committed


@dataclass(frozen=True)
class Product:
    """The registers of a product of a warpgroup, by slot."""

    index: int  # of the instruction
    sums: frozenset[int]  # what it adds to
    left: frozenset[int]  # its left matrix, if that is not in shared memory


@dataclass
class _Work:
    lanes: Lanes  # that started it
    group_numbers: Lanes  # by lane, of the lane's groups, which one it is in
    is_left: Mask  # by lane, whether it is still to be done
    act: Act
    product: Product | None  # that it computes, if it does


class Queue:
    """Work in groups: each lane commits what it has started, and waits for groups."""

    def __init__(self, lanes: int, *, is_late: bool) -> None:
        """Begins with nothing to do.

        Args:
            lanes: Of the batch.
            is_late: Whether work is put off until a lane waits for it.
        """
        self._is_late = is_late
        self._work: list[_Work] = []
        self._committed = np.zeros(lanes, np.int64)  # groups, by lane

    def start(self, lanes: Lanes, act: Act, product: Product | None = None) -> None:
        """Starts work of some lanes, which belongs to their next groups."""
        everyone = np.ones(lanes.size, np.bool_)
        if not self._is_late:
            act(everyone)
            return
        numbers = np.full(lanes.size, _OPEN)
        self._work.append(_Work(lanes, numbers, everyone, act, product))

    def commit(self, group: Group) -> None:
        """Makes a group of all that these lanes have started since the last one."""
        if not self._is_late:
            return
        members = group.members
        for each in self._work:
            ends = members[each.lanes] & (each.group_numbers == _OPEN)
            each.group_numbers[ends] = self._committed[each.lanes[ends]]
        self._committed[group.numbers] += 1

    def wait(self, group: Group, pending: int) -> None:
        """Does what is left of all groups of these lanes but so many, the latest."""
        if not self._work:
            return
        members, due = group.members, self._committed - pending
        for each in self._work:
            is_due = members[each.lanes] & each.is_left
            is_due &= each.group_numbers != _OPEN
            is_due &= each.group_numbers < due[each.lanes]
            self._do(each, is_due)

    def products(self) -> Iterator[tuple[Product, Lanes]]:
        """The products that are not computed yet, and for which lanes."""
        for each in self._work:
            if each.product:
                yield each.product, each.lanes[each.is_left]

    def finish(self, group: Group) -> None:
        """Does all that is left of these lanes, committed or not."""
        members = group.members
        for each in self._work:
            self._do(each, members[each.lanes] & each.is_left)

    def _do(self, work: _Work, chosen: Mask) -> None:
        if chosen.any():
            work.is_left &= ~chosen
            work.act(chosen)
        if not work.is_left.any():
            self._work = [each for each in self._work if each is not work]


class Deliveries:
    """Work that an mbarrier hears of: nobody can tell before when it is done."""

    def __init__(self, *, is_late: bool) -> None:
        """Begins with nothing to do; late work waits until it is asked for."""
        self._is_late = is_late
        self._acts: list[Callable[[], None]] = []

    def start(self, act: Callable[[], None]) -> None:
        """Starts work."""
        if self._is_late:
            self._acts.append(act)
        else:
            act()

    def deliver(self) -> bool:
        """Does what was started first of what is left; whether there was any."""
        if not self._acts:
            return False
        self._acts.pop(0)()
        return True
