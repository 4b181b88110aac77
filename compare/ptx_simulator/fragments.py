"""Matrices in the registers of whole warps: which lane holds which element.

The part of a matrix that a lane holds is its fragment. A register of it has one element
or two. The PTX manual draws who holds what; in short: lane 4 i + j has to do with row,
or column, i of 8, and j is the part of the row that it has.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.group import WARP, Group
from compare.ptx_simulator.operands import Operand
from compare.ptx_simulator.tensor_core import multiply_add
from compare.ptx_simulator.values import U32, Bits, Dtype, Known, Value, settled, spread

SIZE = 8  # rows and columns of the matrices that larger ones consist of
_PARTS = 4  # of a row, each in a lane
_ALL_LANES = U32.type(0xFFFF_FFFF)


class Elements(NamedTuple):
    """Elements of matrices, or the registers that hold them.

    Attributes:
        bits: along several axes.
        known: for each whether it is known, or one answer for all. If that is no, the
            bits have no axes.
    """

    bits: Bits
    known: Known

    def arranged(self, arrange: Callable[[Bits], Bits]) -> "Elements":
        """The same elements along other axes."""
        known = self.known
        return Elements(
            arrange(self.bits), known if isinstance(known, bool) else arrange(known)
        )

    def taken_apart(self, dtype: Dtype) -> "Elements":
        """What registers hold, along one more axis; the lowest comes first."""
        bits, known = self
        single = np.ascontiguousarray(bits)[..., np.newaxis].view(dtype)
        if not isinstance(known, bool):
            known = np.broadcast_to(known[..., np.newaxis], single.shape)
        return Elements(single, known)

    def put_together(self) -> "Elements":
        """The inverse of `taken_apart`; a register is known where all it holds is."""
        bits, known = self
        if not isinstance(known, bool):
            known = np.logical_and.reduce(known, axis=-1)
        return Elements(np.ascontiguousarray(bits).view(U32)[..., 0], known)


UNKNOWN = Elements(np.zeros((), U32), known=False)


# ---- Registers of warps --------------------------------------------------------------


def whole_warps(
    batch: Batch, group: Group, slots: Sequence[int | None], index: int
) -> Group | None:
    """The lanes whose warps are here with all of their lanes; None if there are none.

    For the others a matrix instruction is undefined, and so are the registers that it
    writes, in these slots.
    """
    if group.size == WARP * group.warps:
        return group
    whole = group.present[group.row] == _ALL_LANES
    rest = group.select(~whole)
    if rest is not None:
        batch.forget(slots, rest)
        batch.tell(index, rest, "is without some of the lanes of its warp")
    return group.select(whole)


def read_registers(
    sources: Sequence[Operand], batch: Batch, group: Group, *, to_store: bool = False
) -> Elements:
    """Registers of whole warps, by register, warp and lane.

    If one of them is unknown in all lanes, so are all.

    Args:
        sources: the registers.
        batch: the blocks.
        group: the lanes.
        to_store: whether they are stored: so they are unknown where a lane may not be
            there at all.
    """
    values = []
    for source in sources:
        value = source(batch, group)
        if to_store:
            value = batch.believed(value, group)
        value = Value(value.bits, settled(value.known))
        if value.known is False:
            return UNKNOWN
        values.append(value)

    def by_warp(of_lanes: list[Bits]) -> Bits:
        rows = [spread(each, group.size) for each in of_lanes]
        return np.stack(rows).reshape(len(rows), -1, WARP)

    known: Known = all(each.known is True for each in values)
    if not known:
        known = by_warp([np.asarray(each.known) for each in values])
    return Elements(by_warp([each.bits for each in values]), known)


def write_registers(
    slots: Sequence[int | None], batch: Batch, group: Group, registers: Elements
) -> None:
    """Puts what is given by register, warp and lane into the registers of a group."""
    if registers.known is False:
        batch.forget(slots, group)
        return
    bits, known = registers.arranged(lambda each: each.reshape(len(slots), -1))
    for place, slot in enumerate(slots):
        is_known = known if isinstance(known, bool) else known[place]
        batch.write(slot, group, Value(bits[place], is_known))


# ---- Fragments of matrices that are multiplied ---------------------------------------

# They are given by register, warp, lane, and place in the register.


def left_matrix(fragments: Bits) -> Bits:
    """Matrices of 16 rows, by depth, warp and row."""
    count, warps, _, held = fragments.shape
    axes = fragments.reshape(count // 2, 2, warps, SIZE, _PARTS, held)
    return axes.transpose(0, 4, 5, 2, 1, 3).reshape(-1, warps, 2 * SIZE)


def right_matrix(fragments: Bits) -> Bits:
    """Matrices of 8 columns, by depth, warp and column."""
    count, warps, _, held = fragments.shape
    axes = fragments.reshape(count, warps, SIZE, _PARTS, held)
    return axes.transpose(0, 3, 4, 1, 2).reshape(-1, warps, SIZE)


def sum_matrix(fragments: Bits) -> Bits:
    """Matrices of 16 rows, by warp, row and column."""
    _, warps, _, held = fragments.shape
    axes = fragments.reshape(-1, 2, 2 // held, warps, SIZE, _PARTS, held)
    return axes.transpose(3, 1, 4, 0, 5, 2, 6).reshape(warps, 2 * SIZE, -1)


def sum_fragments(matrices: Bits, held: int) -> Bits:
    """The inverse of `sum_matrix`, for registers that hold so many elements."""
    warps = len(matrices)
    axes = matrices.reshape(warps, 2, SIZE, -1, _PARTS, 2 // held, held)
    return axes.transpose(3, 1, 5, 0, 2, 4, 6).reshape(-1, warps, WARP, held)


def product(
    a: Elements, b: Elements, c: Elements, inputs: tuple[str, str], sums: str
) -> Elements:
    """What `multiply_add` makes of matrices, of which nothing need be known."""
    if any(each.known is False for each in (a, b, c)):
        return UNKNOWN
    known = c.known
    for factor, axis in ((a, 2), (b, 1)):
        if not isinstance(factor.known, bool):
            in_full = np.expand_dims(factor.known.all(axis=0), axis)
            known = np.broadcast_to(known & in_full, c.bits.shape)
    return Elements(multiply_add(a.bits, b.bits, c.bits, inputs, sums), known)
