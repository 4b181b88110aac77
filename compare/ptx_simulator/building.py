"""How an instruction becomes a function that executes it."""

from collections.abc import Callable, Sequence

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import Decoded, Operand
from compare.ptx_simulator.values import Bits, Dtype, Value, both

# Executes an instruction in the lanes of a group.
Execute = Callable[[Batch, Group], None]

# Makes such a function; None for a form of the instruction that cannot be simulated.
Builder = Callable[[Decoded], Execute | None]

# What an instruction makes of the bits of its operands.
Function = Callable[..., Bits]


def do_nothing(batch: Batch, group: Group) -> None:
    """Executes what leaves no trace in registers and memory."""


def forget(slots: Sequence[int | None]) -> Execute:
    """What leaves these registers with nothing that is known."""

    def execute(batch: Batch, group: Group) -> None:
        for slot in slots:
            if slot is not None:
                batch.forget(slot, group)

    return execute


def compute(
    slot: int | None, operands: Sequence[Operand], function: Function
) -> Execute:
    """What puts a function of the operands into a register, where all are known."""
    if slot is None:
        return do_nothing

    def execute(batch: Batch, group: Group) -> None:
        bits: list[Bits] = []
        known: bool | Bits = True
        for operand in operands:
            value = operand(batch, group)
            known = both(known, value.known)
            if known is False:
                batch.forget(slot, group)
                return
            bits.append(value.bits)
        batch.write(slot, group, Value(function(*bits), known))

    return execute


def exactly(
    make: Callable[[Decoded], Function | None], *dtypes: Dtype | None
) -> Builder:
    """Builds instructions of one result that integer arithmetic computes exactly.

    Args:
        make: returns what is to be computed; None where that is not modelled.
        dtypes: of the operands, as far as these are not of the opcode's type.
    """

    def build(decoded: Decoded) -> Execute | None:
        slot = decoded.destination()
        if decoded.type.kind == "f":
            return forget([slot])
        function = make(decoded)
        if function is None or decoded.type.dtype is None or decoded.type.kind == "x":
            return None
        operands = [
            decoded.source(position, dtype or decoded.type.dtype)
            for position, dtype in zip(
                range(1, decoded.count),
                [*dtypes, *[None] * decoded.count],
                strict=False,
            )
        ]
        return compute(slot, operands, function)

    return build
