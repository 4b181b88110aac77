"""Comparisons and choices."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.bitwise import LOGIC
from compare.ptx_simulator.building import Builder, Execute, compute, of_values
from compare.ptx_simulator.floats import (
    F32,
    FORMATS,
    Numbers,
    bits_of,
    flushed,
    numbers_of,
    where_known,
)
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import Decoded
from compare.ptx_simulator.values import (
    BOOL,
    Bits,
    Dtype,
    Known,
    Value,
    settled,
    unknown,
)

_OF_INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
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
# NaN neither equals a number nor does it differ from one; behind `u`, it does all that.
_OF_FLOATS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": lambda a, b: (a < b) | (a > b),
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "equ": lambda a, b: ~((a < b) | (a > b)),
    "neu": operator.ne,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}


def _numbers(decoded: Decoded) -> Callable[[Bits], Numbers]:
    """How an instruction takes the bits that it compares."""
    form = FORMATS.get(decoded.modifiers[-1])
    if form is None:
        return decoded.type.numbers
    if not decoded.has("ftz"):
        return lambda bits: numbers_of(bits, form)
    return lambda bits: flushed(numbers_of(bits, form), form)


def _comparisons(decoded: Decoded) -> Callable[[Batch, Group], Sequence[Value]]:
    """What a `setp` or `set` finds out, combined with a predicate if it names one.

    That is whether the comparison holds, and the opposite; where registers hold two
    numbers each, whether it holds of the lower ones, and of the upper ones.
    """
    table = _OF_FLOATS if decoded.modifiers[-1] in FORMATS else _OF_INTEGERS
    compare, numbers = table[decoded.modifiers[0]], _numbers(decoded)
    left, right = decoded.source(1, decoded.dtype), decoded.source(2, decoded.dtype)
    combine = LOGIC[decoded.modifiers[1]] if decoded.count > 3 else None
    other = decoded.source(3, BOOL) if combine else None

    def comparisons(batch: Batch, group: Group) -> Sequence[Value]:
        a, b = left(batch, group), right(batch, group)
        known = a.known & b.known
        found: Sequence[Value] = (unknown(BOOL), unknown(BOOL))
        if known is not False:
            holds = compare(numbers(a.bits), numbers(b.bits))
            is_pair = holds.ndim > 1
            both = np.ascontiguousarray(holds.T) if is_pair else (holds, ~holds)
            found = [Value(bits, known) for bits in both]
        if combine and other:
            predicate = other(batch, group)
            found = [combine(each, predicate) for each in found]
        return found

    return comparisons


def _set_predicate(decoded: Decoded) -> Execute:
    """`setp`: a comparison into one register, and another into a second."""
    slots, comparisons = decoded.destinations(), _comparisons(decoded)

    def execute(batch: Batch, group: Group) -> None:
        for slot, value in zip(slots, comparisons(batch, group), strict=False):
            batch.write(slot, group, value)

    return execute


def _set(decoded: Decoded) -> Execute:
    """`set`: all ones where a comparison holds, or 1.0 of a floating-point format."""
    slot, comparisons = decoded.destination(), _comparisons(decoded)
    to, source = decoded.modifiers[-2:]
    is_pair = source in FORMATS and FORMATS[source].count > 1
    dtype: Dtype = np.dtype(f"u{decoded.types[0].bytes // (2 if is_pair else 1)}")
    one = dtype.type(np.iinfo(dtype).max)
    if to in FORMATS:
        one = bits_of(np.ones(1, F32), replace(FORMATS[to], count=1))

    def set_all(*holds: Bits) -> Bits:
        parts = np.stack([np.where(each, one, dtype.type(0)) for each in holds], axis=1)
        return parts.view(f"u{dtype.itemsize * len(holds)}").reshape(-1)

    def execute(batch: Batch, group: Group) -> None:
        found = comparisons(batch, group)[: 2 if is_pair else 1]
        batch.write(slot, group, where_known(set_all, dtype)(*found))

    return execute


# ---- Choices -------------------------------------------------------------------------


def _select(decoded: Decoded, a: Value, b: Value, condition: Value) -> Value:
    """`selp`: one of two by a predicate."""
    known: Known = a.known
    if a.known is not b.known:
        known = np.where(condition.bits, a.known, b.known)
    elif known is False:
        return a
    known = known & condition.known
    if settled(condition.known) is not True:  # it does not matter between equals
        known = known | a.known & b.known & (a.bits == b.bits)
    return Value(np.where(condition.bits, a.bits, b.bits), known)


def _select_by_sign(decoded: Decoded) -> Execute:
    """`slct`: one of two by whether a third is 0 or more; NaN is not."""
    dtype, numbers = decoded.types[0].dtype, _numbers(decoded)

    def select(a: Value, b: Value, c: Value) -> Value:
        return _select(decoded, a, b, Value(numbers(c.bits) >= 0, c.known))

    operands = [decoded.source(1, dtype), decoded.source(2, dtype)]
    operands.append(decoded.source(3, decoded.dtype))
    return compute(decoded.destination(), operands, select)


SELECTION: dict[str, Builder] = {
    "setp": _set_predicate,
    "set": _set,
    "selp": of_values(_select, own=2),
    "slct": _select_by_sign,
}
