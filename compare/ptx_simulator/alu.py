"""Integer arithmetic, in two's complement, as the PTX manual defines it."""

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.building import Builder, Execute, Function, exactly, forget
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import Decoded
from compare.ptx_simulator.values import (
    Bits,
    PtxType,
    Value,
    both,
    either,
    settled,
    signed,
    unsigned,
)


def _numbers(bits: Bits, kind: PtxType) -> Bits:
    return signed(bits) if kind.kind == "s" else bits


def _magnitude(bits: Bits) -> Bits:
    """Of numbers in two's complement, without a sign: that of the least fits, too."""
    return np.where(signed(bits) < 0, -bits, bits)


# ---- Sums ----------------------------------------------------------------------------


def _sum_or_difference(decoded: Decoded, sign: int) -> Function:
    if decoded.has("sat"):
        least, most = -(1 << 31), (1 << 31) - 1

        def saturated(a: Bits, b: Bits) -> Bits:
            exact = signed(a).astype(np.int64) + sign * signed(b).astype(np.int64)
            limited: Bits = np.clip(exact, least, most).astype(np.int32)
            return limited

        return saturated
    return np.add if sign == 1 else np.subtract


def _chained(decoded: Decoded) -> Execute | None:
    """`add.cc`, `addc`, `sub.cc`, `subc`: one limb of a number of many.

    The carry is kept as PTX keeps it for sums; for differences it is the borrow.
    """
    slot, dtype = decoded.destination(), decoded.type.dtype
    if slot is None or dtype is None:
        return None
    carry = decoded.decoder.flag("carry")
    stem = decoded.instruction.opcode.partition(".")[0]
    is_sum, takes_carry = stem.startswith("add"), stem.endswith("c")
    gives_carry = decoded.has("cc")
    left, right = decoded.source(1, dtype), decoded.source(2, dtype)
    if gives_carry:
        decoded.writes.append(carry)

    def execute(batch: Batch, group: Group) -> None:
        (a, a_known), (b, b_known) = left(batch, group), right(batch, group)
        known = both(a_known, b_known)
        result = a + b if is_sum else a - b
        overflow = result < a if is_sum else a < b
        if takes_carry:
            before, before_known = batch.read(carry, group)
            known = both(known, before_known)
            step = before.astype(dtype)
            overflow = overflow | (
                (result + step < step) if is_sum else (result < step)
            )
            result = result + step if is_sum else result - step
        batch.write(slot, group, Value(result, known))
        if gives_carry:
            batch.write(carry, group, Value(overflow, known))

    return execute


def _sum(decoded: Decoded) -> Execute | None:
    stem = decoded.instruction.opcode.partition(".")[0]
    if decoded.has("cc") or stem in ("addc", "subc"):
        return _chained(decoded)
    sign = 1 if stem == "add" else -1
    return exactly(lambda each: _sum_or_difference(each, sign))(decoded)


# ---- Products ------------------------------------------------------------------------


def _high_product(a: Bits, b: Bits) -> Bits:
    """The upper 64 bits of the product of two numbers of 64 bits."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    cross = (a >> half) * (b & low) + ((a & low) * (b & low) >> half)
    other = (a & low) * (b >> half) + (cross & low)
    result: Bits = (a >> half) * (b >> half) + (cross >> half) + (other >> half)
    return result


def _product(decoded: Decoded) -> Function | None:
    kind = decoded.type
    if decoded.has("lo"):
        return np.multiply
    if decoded.has("hi") and kind.bits == 64:
        if kind.kind != "s":
            return _high_product

        def signed_high(a: Bits, b: Bits) -> Bits:
            zero = np.uint64(0)
            correction = np.where(signed(a) < 0, b, zero)
            correction += np.where(signed(b) < 0, a, zero)
            result: Bits = _high_product(a, b) - correction
            return result

        return signed_high
    if not (decoded.has("wide") or decoded.has("hi")) or kind.bits > 32:
        return None
    letter = "i" if kind.kind == "s" else "u"
    shift = kind.bits if decoded.has("hi") else 0

    def wide(a: Bits, b: Bits) -> Bits:
        result_type = f"{letter}{2 * kind.bytes}"
        product = _numbers(a, kind).astype(result_type) * _numbers(b, kind)
        return unsigned(product) >> shift

    return wide


def _multiply(decoded: Decoded) -> Execute | None:
    """`mul` and `mad`. A factor that is known to be zero decides a product alone."""
    slot, kind = decoded.destination(), decoded.type
    if kind.kind == "f":
        return forget([slot])
    function = _product(decoded)
    carries = decoded.has("cc") or decoded.instruction.opcode.startswith("madc")
    saturates = decoded.has("sat")
    if slot is None or function is None or kind.dtype is None or carries or saturates:
        return None
    left, right = decoded.source(1, kind.dtype), decoded.source(2, kind.dtype)
    is_wide = decoded.has("wide")
    sum_type = np.dtype(f"u{kind.bytes * (2 if is_wide else 1)}")
    addend = decoded.source(3, sum_type) if decoded.count > 3 else None

    def execute(batch: Batch, group: Group) -> None:
        (a, a_known), (b, b_known) = left(batch, group), right(batch, group)
        known = both(a_known, b_known)
        if known is not True:
            zeros = either(both(a_known, a == 0), both(b_known, b == 0))
            known = settled(either(known, zeros))
            # What stands in for the unknown must not show.
            a, b = (np.where(zeros, a.dtype.type(0), each) for each in (a, b))
        if known is False:
            batch.forget(slot, group)
            return
        result = function(a, b)
        if addend is not None:
            c, c_known = addend(batch, group)
            result, known = result.astype(sum_type) + c, both(known, c_known)
        batch.write(slot, group, Value(result, known))

    return execute


# ---- Quotients -----------------------------------------------------------------------


def _divide(decoded: Decoded) -> Execute | None:
    """`div` and `rem`: towards zero; what division by zero gives is unknown."""
    slot, kind = decoded.destination(), decoded.type
    if kind.kind == "f":
        return forget([slot])
    if slot is None or not kind.is_integer:
        return None
    wants_rest = decoded.instruction.opcode.startswith("rem")
    left, right = decoded.source(1, kind.dtype), decoded.source(2, kind.dtype)

    def execute(batch: Batch, group: Group) -> None:
        (a, a_known), (b, b_known) = left(batch, group), right(batch, group)
        known = settled(both(both(a_known, b_known), b != 0))
        if known is False:
            batch.forget(slot, group)
            return
        negative = np.zeros(1, np.bool_)
        if kind.kind == "s":
            negative = signed(a) < 0
            if not wants_rest:
                negative = negative != (signed(b) < 0)
            a, b = _magnitude(a), _magnitude(b)
        divisor = np.where(b == 0, b.dtype.type(1), b)
        result = a % divisor if wants_rest else a // divisor
        result = np.where(negative, -result, result)
        batch.write(slot, group, Value(result, known))

    return execute


# ---- The rest ------------------------------------------------------------------------


def _extreme(decoded: Decoded, pick: np.ufunc) -> Function:
    kind = decoded.type

    def extreme(a: Bits, b: Bits) -> Bits:
        result: Bits = pick(_numbers(a, kind), _numbers(b, kind))
        return np.maximum(result, 0) if decoded.has("relu") else result

    return extreme


def _sad(decoded: Decoded) -> Function:
    kind = decoded.type

    def sum_of_difference(a: Bits, b: Bits, c: Bits) -> Bits:
        is_less = _numbers(a, kind) < _numbers(b, kind)
        return np.where(is_less, b - a, a - b) + c

    return sum_of_difference


def _min_or_max(pick: np.ufunc) -> Builder:
    return exactly(lambda decoded: _extreme(decoded, pick))


ARITHMETIC: dict[str, Builder] = {
    "add": _sum,
    "addc": _sum,
    "sub": _sum,
    "subc": _sum,
    "mul": _multiply,
    "mad": _multiply,
    "madc": _multiply,
    "div": _divide,
    "rem": _divide,
    "abs": exactly(lambda decoded: _magnitude),
    "neg": exactly(lambda decoded: np.negative),
    "min": _min_or_max(np.minimum),
    "max": _min_or_max(np.maximum),
    "sad": exactly(_sad),
}
