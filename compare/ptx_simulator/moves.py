"""Moves and conversions, of numbers and of addresses."""

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.building import Builder, Execute, compute, forget
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import Decoded, Operand
from compare.ptx_simulator.spaces import WINDOW_BYTES, WINDOWS
from compare.ptx_simulator.values import (
    U64,
    Bits,
    Mask,
    PtxType,
    Value,
    both,
    extend,
    signed,
)


def _move(decoded: Decoded) -> Execute | None:
    """`mov`, also of what is cut into several registers or put together from them."""
    slots = decoded.destinations(0)
    dtype = decoded.type.dtype
    if len(slots) > 1:
        return _unpack(slots, decoded.source(1, dtype), decoded.type.bits)
    if decoded.text(1).startswith("{"):
        parts = decoded.sources(1, None)
        return _pack(slots[0], parts, decoded.type.bits // len(parts))
    slot, source = slots[0], decoded.source(1, dtype)
    if slot is None:
        return forget([])

    def execute(batch: Batch, group: Group) -> None:
        batch.write(slot, group, source(batch, group))

    return execute


def _unpack(slots: list[int | None], source: Operand, width: int) -> Execute:
    width //= len(slots)

    def execute(batch: Batch, group: Group) -> None:
        bits, known = source(batch, group)
        for place, slot in enumerate(slots):
            if slot is not None:
                batch.write(slot, group, Value(bits >> width * place, known))

    return execute


def _pack(slot: int | None, parts: list[Operand], width: int) -> Execute:
    mask = (1 << width) - 1
    if slot is None or len(parts) * width > 64:
        return forget([slot])

    def execute(batch: Batch, group: Group) -> None:
        result: Bits = np.zeros(1, U64)
        known: bool | Mask = True
        for place, part in enumerate(parts):
            bits, part_known = part(batch, group)
            result = result | (bits.astype(U64) & mask) << width * place
            known = both(known, part_known)
        batch.write(slot, group, Value(result, known))

    return execute


def _convert(decoded: Decoded) -> Execute | None:
    """`cvt` between integers; what is floating point before or after is unknown."""
    slots = decoded.destinations(0)
    if any(each.kind == "f" for each in decoded.types):
        return forget(slots)
    if decoded.has("pack") or len(decoded.types) != 2 or slots[0] is None:
        return None
    to, source = decoded.types
    if to.dtype is None or source.dtype is None:
        return None
    register = decoded.decoder.dtypes[slots[0]]
    to_type, is_signed = to.dtype, to.kind == "s"
    limited = _limits(source, to) if decoded.has("sat") else None

    def convert(bits: Bits) -> Bits:
        if limited:
            numbers = signed(bits) if source.kind == "s" else bits
            bits = np.clip(numbers, *limited).astype(bits.dtype)
        wide = extend(bits, to_type, is_signed=source.kind == "s")
        return extend(wide, register, is_signed=is_signed)

    return compute(slots[0], [decoded.source(1, source.dtype)], convert)


def _limits(source: PtxType, to: PtxType) -> tuple[int, int]:
    """The least and the greatest number that both types have."""
    ranges = [
        (-(1 << each.bits - 1), (1 << each.bits - 1) - 1)
        if each.kind == "s"
        else (0, (1 << each.bits) - 1)
        for each in (source, to)
    ]
    return max(least for least, _ in ranges), min(most for _, most in ranges)


def _space(decoded: Decoded) -> str:
    """The space that an opcode names: `shared` of `shared::cta`."""
    names = (each.partition("::")[0] for each in decoded.modifiers)
    return next((each for each in names if each in WINDOWS), "global")


def _convert_address(decoded: Decoded) -> Execute | None:
    """`cvta`: from an address in a space to a generic one, and back."""
    window = WINDOWS[_space(decoded)]
    step = -window if decoded.has("to") else window

    def convert(address: Bits) -> Bits:
        return address + U64.type(step % (1 << 64)) if step else address

    return compute(decoded.destination(), [decoded.source(1, U64)], convert)


def _is_in_space(decoded: Decoded) -> Execute | None:
    """`isspacep`: whether a generic address is in a space."""
    window = WINDOWS[_space(decoded)]
    others = [each for each in WINDOWS.values() if each]

    def is_in_space(address: Bits) -> Bits:
        found = address // WINDOW_BYTES * WINDOW_BYTES
        return found == window if window else ~np.isin(found, others)

    return compute(decoded.destination(), [decoded.source(1, U64)], is_in_space)


def _map_address(decoded: Decoded) -> Execute | None:
    """`mapa`: the same place in another block, for which the own one stands."""
    dtype = decoded.type.dtype
    if dtype is None:
        return None
    return compute(
        decoded.destination(), [decoded.source(1, dtype)], lambda address: address
    )


MOVES: dict[str, Builder] = {
    "mov": _move,
    "cvt": _convert,
    "cvta": _convert_address,
    "isspacep": _is_in_space,
    "mapa": _map_address,
}
