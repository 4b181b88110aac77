"""Comparisons and choices."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.building import Builder, Execute, compute, forget
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import Decoded, Operand
from compare.ptx_simulator.values import (
    BOOL,
    Bits,
    Mask,
    Value,
    both,
    either,
    settled,
    signed,
    unknown,
)

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
}
_COMBINATIONS = ("and", "or", "xor")


def _comparison(decoded: Decoded) -> Operand | None:
    """What a `setp` or `set` compares, without what it combines it with."""
    kind = decoded.type
    if kind.kind == "f":
        return lambda batch, group: unknown(BOOL)
    compare = _COMPARISONS.get(decoded.modifiers[0])
    if compare is None or not kind.is_integer:
        return None
    left, right = decoded.source(1, kind.dtype), decoded.source(2, kind.dtype)

    def comparison(batch: Batch, group: Group) -> Value:
        (a, a_known), (b, b_known) = left(batch, group), right(batch, group)
        known = both(a_known, b_known)
        if known is False:
            return unknown(BOOL)
        if kind.kind == "s":
            a, b = signed(a), signed(b)
        return Value(compare(a, b), known)

    return comparison


def _combined(combination: str, left: Value, right: Value) -> Value:
    """`and`, `or`, `xor` of predicates; one that decides alone need not be known."""
    (a, a_known), (b, b_known) = left, right
    known = both(a_known, b_known)
    if combination == "xor":
        return Value(a ^ b, known)
    decides = combination == "or"
    if known is not True:
        decided = either(both(a_known, a == decides), both(b_known, b == decides))
        known = settled(either(known, decided))
    return Value(a | b if decides else a & b, known)


def _set_predicate(decoded: Decoded) -> Execute | None:
    """`setp`: into one register what a comparison gives, into another the opposite."""
    slots = decoded.destinations(0)
    comparison = _comparison(decoded)
    if comparison is None:
        return None
    other = decoded.source(3, BOOL) if decoded.count > 3 else None
    found = [each for each in decoded.modifiers if each in _COMBINATIONS]

    def execute(batch: Batch, group: Group) -> None:
        result = comparison(batch, group)
        values = [result, Value(~result.bits, result.known)]
        if other and found:
            right = other(batch, group)
            values = [_combined(found[0], each, right) for each in values]
        for slot, value in zip(slots, values, strict=False):
            if slot is not None:
                batch.write(slot, group, value)

    return execute


def _set(decoded: Decoded) -> Execute | None:
    """`set`: all ones, or 1.0, where a comparison holds."""
    slot = decoded.destination()
    if decoded.types[0].kind == "f":
        return forget([slot])
    comparison, dtype = _comparison(decoded), decoded.types[0].dtype
    if comparison is None or decoded.count > 3:
        return None
    return compute(slot, [comparison], lambda holds: np.negative(holds.astype(dtype)))


def _where(holds: Bits, left: bool | Mask, right: bool | Mask) -> bool | Mask:
    if isinstance(left, bool) and left is right:
        return left
    return settled(np.where(holds, left, right))


def _choice(
    slot: int | None, left: Operand, right: Operand, condition: Operand
) -> Execute | None:
    if slot is None:
        return None

    def execute(batch: Batch, group: Group) -> None:
        (a, a_known), (b, b_known) = left(batch, group), right(batch, group)
        holds, holds_known = condition(batch, group)
        known = both(holds_known, _where(holds, a_known, b_known))
        if holds_known is not True:  # it does not matter between equals
            alike = both(both(a_known, b_known), settled(a == b))
            known = settled(either(known, alike))
        if known is False:
            batch.forget(slot, group)
        else:
            batch.write(slot, group, Value(np.where(holds, a, b), known))

    return execute


def _select(decoded: Decoded) -> Execute | None:
    """`selp`: one of two by a predicate."""
    slot, dtype = decoded.destination(), decoded.type.dtype
    left, right = decoded.source(1, dtype), decoded.source(2, dtype)
    return _choice(slot, left, right, decoded.source(3, BOOL))


def _select_by_sign(decoded: Decoded) -> Execute | None:
    """`slct`: one of two by whether a third is negative."""
    slot, dtype = decoded.destination(), decoded.types[0].dtype
    if decoded.type.kind == "f":
        return forget([slot])
    number = decoded.source(3, decoded.type.dtype)

    def is_positive(batch: Batch, group: Group) -> Value:
        bits, known = number(batch, group)
        return Value(signed(bits) >= 0, known)

    return _choice(
        slot, decoded.source(1, dtype), decoded.source(2, dtype), is_positive
    )


SELECTION: dict[str, Builder] = {
    "setp": _set_predicate,
    "set": _set,
    "selp": _select,
    "slct": _select_by_sign,
}
