"""Who uses the registers of products by warpgroups, `wgmma`, and when.

From its start until the end of the wait for it, a product adds to its sums and may read
its a, which other instructions must leave alone. And a `wgmma.fence` must lie between
their uses of these registers and the product, also before the first one. Only products
that add to the same sums need neither: they come one after the other.

So says the PTX ISA; on a GPU the assembler often mends it, at the price of speed. Of
moves it costs nothing: compilers copy numbers and registers into those of a product
right in front of it, behind the fence that their programmer wrote. What is moved is
older, and so is the machine code's move, if there is one. So a move between such
registers, or of a number, counts as made at the last other use of any of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compare.ptx_simulator.asynchronous import Product, Queue
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.values import Lanes, Mask

TOO_EARLY = "a wgmma that no wgmma.wait_group has waited for"
UNFENCED = "uses registers that no wgmma.fence has handed over to it"

# Takes an instruction, a lane, what this does, and another instruction.
Tell = Callable[[int, int, str, int | None], None]


@dataclass(frozen=True)
class Use:
    """What another instruction does to registers of products, by slot."""

    index: int  # of the instruction
    reads: frozenset[int]
    writes: frozenset[int]
    is_move: bool = False  # of a number, or of one register of products to another

    def spoils(self, product: Product) -> str:
        """What it does that it must not while a product is under way, or nothing."""
        if not product.sums.isdisjoint(self.reads):
            return f"reads accumulators of {TOO_EARLY}"
        if not product.sums.isdisjoint(self.writes):
            return f"writes accumulators of {TOO_EARLY}"
        if not product.left.isdisjoint(self.writes):
            return f"writes registers that are read by {TOO_EARLY}"
        return ""


class RegisterUse:
    """Looks for registers of products that are used too early, or without a fence."""

    def __init__(self, lanes: int, queue: Queue, tell: Tell) -> None:
        """Begins with no use of any.

        Args:
            lanes: Of the batch.
            queue: Of products that are under way.
            tell: Takes what is found.
        """
        self._queue = queue
        self._tell = tell
        self._fences = np.zeros(lanes, np.int64)  # that each lane has executed
        # By slot, how many those were at the last use, and the instruction.
        self._uses: dict[int, tuple[Lanes, int]] = {}
        self._products: dict[int, Lanes] = {}  # likewise at the last product's start

    def fence(self, group: Group) -> None:
        """`wgmma.fence`."""
        self._fences[group.numbers] += 1

    def use(self, use: Use, group: Group) -> None:
        """Another instruction's use of registers of products."""
        self._look(use, group)
        lanes, index = group.numbers, use.index
        fences = self._fences[lanes]
        if use.is_move:
            fences, index = self._before(use, lanes)
        for slot in use.reads | use.writes:
            before = self._uses.get(slot)
            counts = np.zeros_like(self._fences) if before is None else before[0]
            counts[lanes] = fences
            self._uses[slot] = counts, index

    def _before(self, move: Use, lanes: Lanes) -> tuple[Lanes, int]:
        """When these lanes could have moved at the earliest, and what comes before."""
        fences, index = np.zeros(lanes.size, np.int64), move.index
        for slot in move.reads | move.writes:
            if slot in self._products:
                fences = np.maximum(fences, self._products[slot][lanes])
            if slot in self._uses:
                counts, other = self._uses[slot]
                index = other if (counts[lanes] > fences).any() else index
                fences = np.maximum(fences, counts[lanes])
        return fences, index

    def start(self, product: Product, group: Group) -> None:
        """A product begins, which must not read what another one still adds to."""
        self._look(Use(product.index, product.left, frozenset()), group)
        fences = self._fences[group.numbers]
        self._tell_unfenced(product, group, fences == 0, None)
        for slot in (product.sums | product.left) & self._uses.keys():
            counts, index = self._uses[slot]
            is_unfenced = counts[group.numbers] == fences
            self._tell_unfenced(product, group, is_unfenced, index)
        for slot in product.sums | product.left:
            if slot not in self._products:
                self._products[slot] = np.zeros_like(self._fences)
            self._products[slot][group.numbers] = fences

    def _tell_unfenced(
        self, product: Product, group: Group, where: Mask, other: int | None
    ) -> None:
        if where.any():
            lane = int(group.numbers[where.argmax()])
            self._tell(product.index, lane, UNFENCED, other)

    def _look(self, use: Use, group: Group) -> None:
        for product, lanes in self._queue.products():
            what = use.spoils(product)
            early = lanes[group.members[lanes]] if what else lanes[:0]
            if early.size:
                self._tell(use.index, int(early[0]), what, product.index)
