"""In which order the warps of a block are run, where they are not run side by side."""

import random
import re
from collections.abc import Iterable, Mapping

import numpy as np

from compare.ptx_simulator.group import WARP, Group, Layout
from compare.ptx_simulator.values import Mask

_RANDOM = re.compile(r"random:(\d+)")


class WarpOrder:
    """Orders the warps of a block again and again."""

    def __init__(self, order: str) -> None:
        """Takes an order as the emulator does: forward, reverse or random:SEED.

        Raises:
            ValueError: It is another one.
        """
        found = _RANDOM.fullmatch(order)
        if not found and order not in ("forward", "reverse"):
            raise ValueError(
                f"order is {order!r}, expected forward, reverse or random:SEED"
            )
        self._is_reverse = order == "reverse"
        self._random = random.Random(int(found[1])) if found else None

    def latecomer(self, layout: Layout) -> "Latecomer | None":
        """A warp that comes late, unless the order is given."""
        if self._random is None:
            return None
        n_warps = layout.lanes_per_block // WARP
        return Latecomer(layout, self._random.randrange(n_warps))

    def ordered(self, warps: Iterable[int]) -> list[int]:
        """The numbers of warps that can go on, in the order to run them in."""
        numbers = sorted(warps, reverse=self._is_reverse)
        if self._random:
            self._random.shuffle(numbers)
        return numbers


class Latecomer:
    """A warp of each block that goes on only where nobody else can.

    What others do meanwhile may be more than it can follow. The warps of a warpgroup
    that multiplies go on together.

    Attributes:
        held: its lanes that could go on, by the instruction to go on with.
    """

    def __init__(self, layout: Layout, warp: int) -> None:
        """Begins with nothing held back."""
        self.held: dict[int, Group] = {}
        self._is_late = layout.thread_of_lane // WARP == warp

    def hold(
        self, ready: Mapping[int, Group], multiplies: Mask | bool
    ) -> dict[int, Group]:
        """Keeps its lanes back if there are others; those that are to go on.

        Args:
            ready: the lanes that can go on, by the instruction to go on with.
            multiplies: those whose warpgroups may.
        """
        rest: dict[int, Group] = {}
        held = self.held.copy()
        may_be_late = self._is_late & np.logical_not(multiplies)
        for place, group in ready.items():
            is_late = may_be_late[group.numbers]
            if others := group.select(~is_late):
                rest[place] = others
            if late := group.select(is_late):
                held[place] = late.union(held.get(place))
        if not rest:
            return {**ready}
        self.held = held
        return rest
