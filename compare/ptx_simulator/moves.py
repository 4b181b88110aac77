"""Moves and conversions, of numbers and of addresses."""

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.building import (
    Builder,
    Execute,
    compute,
    exactly,
    forget,
    of_values,
)
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import Decoded, Operand, UnmodelledError
from compare.ptx_simulator.spaces import WINDOW_BYTES, WINDOWS
from compare.ptx_simulator.values import U64, Bits, PtxType, Value


def _move(decoded: Decoded) -> Execute:
    """`mov`, also of what is cut into several registers or put together from them."""
    slots, dtype = decoded.destinations(), decoded.type.dtype
    if len(slots) > 1:
        return _unpack(slots, decoded.source(1, dtype), decoded.type.bits)
    if decoded.text(1).startswith("{"):
        return _pack(slots[0], decoded.sources(1, None), decoded.type.bits)
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


def _convert(decoded: Decoded) -> Execute:
    """`cvt` between integers."""
    if decoded.has("pack") or len(decoded.types) != 2:
        raise UnmodelledError
    to, source = decoded.types
    if to.dtype is None or source.dtype is None:
        raise UnmodelledError
    limits = _limits(source, to) if decoded.has("sat") else None

    def convert(value: Value) -> Value:
        numbers = source.numbers(value.bits)
        if limits:
            numbers = np.clip(numbers, *limits)
        return Value(to.numbers(numbers.astype(to.dtype)), value.known)

    return compute(decoded.destination(), [decoded.source(1, source.dtype)], convert)


def _limits(source: PtxType, to: PtxType) -> tuple[int, int]:
    """The least and the greatest number that both types have."""
    ranges = [
        np.iinfo(f"{'i' if each.kind == 's' else 'u'}{each.bytes}")
        for each in (source, to)
    ]
    return max(each.min for each in ranges), min(each.max for each in ranges)


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


MOVES: dict[str, Builder] = {
    "mov": _move,
    "cvt": _convert,
    "cvta": exactly(_convert_address),
    "isspacep": _is_in_space,
    # The same place in another block, for which the own one stands.
    "mapa": of_values(lambda decoded, address, block: address, own=1),
}
