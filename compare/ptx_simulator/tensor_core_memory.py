"""Tensor memory, which the tensor cores of sm_100 have beside shared memory.

Each block has 128 lanes of 512 columns, with 32 bits where they cross. A block asks for
columns before it uses them. An address has the lane in its upper 16 bits and the column
in the lower ones.

Races in it are not looked for. But where asynchronous work is put off, what comes from
products and stores that nobody has waited for is missing.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from compare.ptx_simulator.asynchronous import Act, Queue
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.races import Actor
from compare.ptx_simulator.values import BOOL, U32, Lanes, Mask, Value

LANES, COLUMNS = 128, 512
_FEWEST = 32  # columns that a block can ask for; and they begin at a multiple of it


class Cells(NamedTuple):
    """Places in tensor memory, along several axes.

    Attributes:
        owners: whose it is: the place of its block.
        lanes: the lane of each.
        columns: the column of each.
    """

    owners: Lanes
    lanes: Lanes
    columns: Lanes

    def select(self, chosen: Mask) -> "Cells":
        """Some of them along the first axis, which all three have."""
        return Cells(*(each[chosen] for each in self))

    def at(self, place: tuple[int, ...]) -> tuple[int, int]:
        """Lane and column of one of them."""
        shape = np.broadcast_shapes(*(each.shape for each in self))
        lane, column = (np.broadcast_to(each, shape)[place] for each in self[1:])
        return int(lane), int(column)


class TensorCoreMemory:
    """The tensor memory of all blocks of a batch, and what goes on in it.

    Attributes:
        stores: from registers, for all of which a lane waits at once.
        products: that read and write it.
    """

    def __init__(self, blocks: int, lanes: int, *, is_late: bool) -> None:
        """Begins with no columns.

        Args:
            blocks: how many there are.
            lanes: threads of all of them.
            is_late: whether asynchronous work is put off.
        """
        self._shape = blocks, LANES, COLUMNS
        self._bits = np.zeros(0, U32)
        self._known = np.zeros(0, BOOL)
        # For each column the first one of those that were asked for together, or -1.
        self._first = np.full((blocks, COLUMNS), -1)
        self._may_allocate = np.ones(blocks, np.bool_)
        self.stores = Queue(lanes, is_late=is_late)
        self.products = Products(is_late=is_late)

    # ---- Columns ---------------------------------------------------------------------

    def allocate(self, block: int, columns: int) -> int | None:
        """Gives a block so many columns, the first ones that are free in a row.

        Returns:
            The first column; None if the block cannot have so many, or none any more.
        """
        is_size = _FEWEST <= columns <= COLUMNS and not columns & (columns - 1)
        if not (is_size and self._may_allocate[block]):
            return None
        if not self._bits.size:
            # What is never touched takes no memory.
            self._bits = np.zeros(self._shape, U32)
            self._known = np.zeros(self._shape, BOOL)
        for first in range(0, COLUMNS - columns + 1, _FEWEST):
            some = self._first[block, first : first + columns]
            if (some < 0).all():
                some[:] = first
                return first
        return None

    def free(self, block: int, first: int, columns: int) -> bool:
        """Takes columns back; whether just these were asked for together."""
        is_theirs = self._first[block] == first
        if columns < 1 or is_theirs.sum() != columns:
            return False
        self._first[block, is_theirs] = -1
        self._known[block, :, is_theirs] = False
        return True

    def relinquish(self, blocks: Lanes) -> None:
        """From now on these blocks get no more columns."""
        self._may_allocate[blocks] = False

    # ---- Cells -----------------------------------------------------------------------

    def are_there(self, cells: Cells) -> Mask:
        """Which of them are in columns that their block has."""
        owners, lanes, columns = cells
        exist = (lanes < LANES) & (columns < COLUMNS)
        there: Mask = exist & (self._first[owners, columns % COLUMNS] >= 0)
        return there

    def load(self, cells: Cells) -> Value:
        """What is in cells, all of which are there; along their axes."""
        places = self._places(cells)
        known = self._known.take(places)
        return Value(self._bits.take(places), bool(known.all()) or known)

    def store(self, cells: Cells, value: Value) -> None:
        """Puts a value into cells, all of which are there."""
        places = self._places(cells)
        self._bits.reshape(-1)[places] = value.bits
        self._known.reshape(-1)[places] = value.known

    @staticmethod
    def _places(cells: Cells) -> Lanes:
        """Where they lie, one lane behind the other."""
        owners, lanes, columns = cells
        return (owners * LANES + lanes) * COLUMNS + columns


# ---- Products ------------------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """Products that threads have started, one for each."""

    lanes: Lanes  # who did
    act: Act
    actor: Actor | None  # who reads shared memory, where races are looked for


class Products:
    """Products that have been started, and that no commit tracks yet.

    Those of one thread are done in the order in which it started them.
    """

    def __init__(self, *, is_late: bool) -> None:
        """Begins with none.

        Args:
            is_late: Whether they are put off until a commit tells that they are done.
        """
        self._is_late = is_late
        self._left: list[tuple[Started, Mask]] = []  # with the lanes whose are left

    def start(self, products: Started) -> None:
        """Starts them."""
        everyone = np.ones(products.lanes.size, np.bool_)
        if self._is_late:
            self._left.append((products, everyone))
        else:
            products.act(everyone)

    def take(self, group: Group) -> list[tuple[Started, Mask]]:
        """All that is left of what these lanes have started, and by which of them."""
        taken: list[tuple[Started, Mask]] = []
        rest: list[tuple[Started, Mask]] = []
        for products, left in self._left:
            theirs = group.members[products.lanes]
            for some, chosen in ((taken, left & theirs), (rest, left & ~theirs)):
                if chosen.any():
                    some.append((products, chosen))
        self._left = rest
        return taken
