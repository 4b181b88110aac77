"""Moves of numbers, and conversions of addresses."""

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.building import (
    Builder,
    Execute,
    compute,
    exactly,
    forget,
)
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import Decoded, Operand
from compare.ptx_simulator.spaces import OTHER_BLOCK_BITS, WINDOW_BYTES, WINDOWS
from compare.ptx_simulator.values import U32, U64, Bits, Value


def _move(decoded: Decoded) -> Execute:
    """`mov`, also of what is cut into several registers or put together from them."""
    slots, dtype = decoded.destinations(), decoded.type.dtype
    if len(slots) > 1:
        return _unpack(slots, decoded.source(1, dtype), decoded.type.bits)
    if decoded.text(1).startswith("{"):
        return _pack(slots[0], decoded.packed(1), decoded.type.bits)
    return compute(slots[0], [decoded.source(1, dtype)], lambda value: value)


def _unpack(slots: list[int | None], source: Operand, width: int) -> Execute:
    step = width // len(slots)

    def execute(batch: Batch, group: Group) -> None:
        bits, known = source(batch, group)
        for place, slot in enumerate(slots):
            batch.write(slot, group, Value(bits >> step * place, known))

    return execute


def _pack(slot: int | None, parts: list[Operand], width: int) -> Execute:
    step = width // len(parts)
    if width > 64:
        return forget([slot])

    def pack(*values: Value) -> Value:
        result, known = Value(np.zeros(1, U64), known=True)
        for place, (bits, part_known) in enumerate(values):
            part = bits.astype(U64) & (1 << step) - 1
            result, known = result | part << step * place, known & part_known
        return Value(result, known)

    return compute(slot, parts, pack)


def _window(decoded: Decoded) -> int:
    """Where the generic addresses of the space that an opcode names begin."""
    return WINDOWS[next(iter(decoded.spaces), "global")]


def _convert_address(decoded: Decoded, address: Bits) -> Bits:
    """`cvta`: from an address in a space to a generic one, and back."""
    window = _window(decoded)
    result: Bits = address - window if decoded.has("to") else address + window
    return result


def _is_in_space(decoded: Decoded) -> Execute:
    """`isspacep`: whether a generic address is in a space."""
    window = _window(decoded)
    others = [each for each in WINDOWS.values() if each]

    def is_in_space(address: Value) -> Value:
        found = address.bits // WINDOW_BYTES * WINDOW_BYTES
        holds = found == window if window else ~np.isin(found, others)
        return Value(holds, address.known)

    return compute(decoded.destination(), [decoded.source(1, U64)], is_in_space)


def _map_address(decoded: Decoded) -> Execute:
    """`mapa`: the same place in another block; without contents the own one's."""
    slot, dtype = decoded.destination(), decoded.dtype
    address, block = decoded.source(1, dtype), decoded.source(2, U32)

    def execute(batch: Batch, group: Group) -> None:
        value = address(batch, group)
        if batch.has_contents:
            rank, known = block(batch, group)
            other = (rank.astype(dtype) + dtype.type(1)) << OTHER_BLOCK_BITS
            value = Value(value.bits + other, value.known & known)
        batch.write(slot, group, value)

    return execute


MOVES: dict[str, Builder] = {
    "mov": _move,
    "cvta": exactly(_convert_address),
    "isspacep": _is_in_space,
    "mapa": _map_address,
}
