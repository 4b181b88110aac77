"""Makes functions that execute instructions."""

import operator
from collections.abc import Callable, Sequence
from functools import reduce

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import Decoded, Operand
from compare.ptx_simulator.values import U32, Bits, Value

_ALL = 8  # operands; no instruction that is built here has more

# Executes an instruction in the lanes of a group.
Execute = Callable[[Batch, Group], None]

# Makes such a function, or raises `UnmodelledError`.
Builder = Callable[[Decoded], Execute]


def do_nothing(batch: Batch, group: Group) -> None:
    """Executes what leaves no trace in registers and memory."""


def forget(slots: Sequence[int | None]) -> Execute:
    """Makes these registers unknown."""
    return lambda batch, group: batch.forget(slots, group)


def compute(
    slot: int | None, operands: Sequence[Operand], function: Callable[..., Value]
) -> Execute:
    """Puts a function of the operands into a register."""

    def execute(batch: Batch, group: Group) -> None:
        # To pick out many lanes and to put them back takes longer than to compute a few
        # more.
        lanes = group.layout.all_lanes if group.are_many else group
        value = function(*(each(batch, lanes) for each in operands))
        batch.write(slot, group, value, are_all=group.are_many)

    return execute


def of_values(function: Callable[..., Value], own: int = _ALL) -> Builder:
    """Builds instructions of one result.

    Args:
        function: of the decoded instruction and its operands.
        own: how many of these are of the opcode's type; the others have 32 bits.
    """

    def build(decoded: Decoded) -> Execute:
        operands = [
            decoded.source(position, decoded.dtype if position <= own else U32)
            for position in range(1, decoded.count)
        ]
        return compute(
            decoded.destination(), operands, lambda *values: function(decoded, *values)
        )

    return build


def exactly(function: Callable[..., Bits], own: int = _ALL) -> Builder:
    """Builds instructions whose result is known where all operands are.

    Args:
        function: of the decoded instruction and the bits of its operands.
        own: see `of_values`.
    """

    def of_known(decoded: Decoded, *values: Value) -> Value:
        known = reduce(operator.and_, (each.known for each in values))
        return Value(function(decoded, *(each.bits for each in values)), known)

    return of_values(of_known, own)
