"""Comparisons and choices."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.bitwise import LOGIC
from compare.ptx_simulator.building import Builder, Execute, compute, of_values
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import Decoded, Operand, UnmodelledError
from compare.ptx_simulator.values import BOOL, Known, Value, settled, signed, unknown

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


def _comparison(decoded: Decoded) -> Operand:
    """The comparison of a `setp` or `set`, before it is combined with a predicate."""
    kind = decoded.type
    if kind.kind == "f":
        return lambda batch, group: unknown(BOOL)
    compare = _COMPARISONS[decoded.modifiers[0]]
    left, right = decoded.source(1, decoded.dtype), decoded.source(2, decoded.dtype)

    def comparison(batch: Batch, group: Group) -> Value:
        a, b = left(batch, group), right(batch, group)
        holds = compare(kind.numbers(a.bits), kind.numbers(b.bits))
        return Value(holds, a.known & b.known)

    return comparison


def _set_predicate(decoded: Decoded) -> Execute:
    """`setp`: a comparison into one register, the opposite into another."""
    slots, comparison = decoded.destinations(), _comparison(decoded)
    combine = LOGIC[decoded.modifiers[1]] if decoded.count > 3 else None
    other = decoded.source(3, BOOL) if combine else None

    def execute(batch: Batch, group: Group) -> None:
        holds, known = comparison(batch, group)
        for slot, bits in zip(slots, (holds, ~holds), strict=False):
            value = Value(bits, known)
            if combine and other:
                value = combine(value, other(batch, group))
            batch.write(slot, group, value)

    return execute


def _set(decoded: Decoded) -> Execute:
    """`set`: all ones where a comparison holds."""
    if decoded.count > 3:
        raise UnmodelledError
    dtype = decoded.types[0].dtype
    return compute(
        decoded.destination(),
        [_comparison(decoded)],
        lambda holds: Value(np.negative(holds.bits.astype(dtype)), holds.known),
    )


def _select(decoded: Decoded, a: Value, b: Value, condition: Value) -> Value:
    """`selp`: one of two by a predicate."""
    known: Known = a.known
    if a.known is not b.known:
        known = np.where(condition.bits, a.known, b.known)
    known = known & condition.known
    if settled(condition.known) is not True:  # it does not matter between equals
        known = known | a.known & b.known & (a.bits == b.bits)
    return Value(np.where(condition.bits, a.bits, b.bits), known)


def _select_by_sign(decoded: Decoded) -> Execute:
    """`slct`: one of two by whether a third is negative."""
    dtype = decoded.types[0].dtype
    operands = [decoded.source(1, dtype), decoded.source(2, dtype)]
    return compute(
        decoded.destination(),
        [*operands, decoded.source(3, decoded.dtype)],
        lambda a, b, c: _select(decoded, a, b, Value(signed(c.bits) >= 0, c.known)),
    )


SELECTION: dict[str, Builder] = {
    "setp": _set_predicate,
    "set": _set,
    "selp": of_values(_select, own=2),
    "slct": _select_by_sign,
}
