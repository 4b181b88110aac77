"""In which order the warps of a block are run, where they are not run side by side."""

import random
import re
from collections.abc import Iterable

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

    def ordered(self, warps: Iterable[int]) -> list[int]:
        """The numbers of warps that can go on, in the order to run them in."""
        numbers = sorted(warps, reverse=self._is_reverse)
        if self._random:
            self._random.shuffle(numbers)
        return numbers
