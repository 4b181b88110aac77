"""Integer arithmetic, in two's complement, as the PTX manual defines it."""

from functools import partial

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.building import (
    Builder,
    Execute,
    compute,
    exactly,
    of_values,
)
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import Decoded, UnmodelledError
from compare.ptx_simulator.values import Bits, Value, decided, signed


def _magnitude(bits: Bits) -> Bits:
    """Absolute values of numbers in two's complement; that of the least fits, too."""
    return np.where(signed(bits) < 0, -bits, bits)


# ---- Sums ----------------------------------------------------------------------------


def _sum(decoded: Decoded, a: Bits, b: Bits) -> Bits:
    is_sum = decoded.stem == "add"
    if decoded.has("sat"):
        a, b = (signed(each).astype(np.int64) for each in (a, b))
    result: Bits = a + b if is_sum else a - b
    return np.clip(result, -(1 << 31), (1 << 31) - 1) if decoded.has("sat") else result


def _chained_sum(decoded: Decoded) -> Execute:
    """`add.cc`, `addc`, `sub.cc`, `subc`: one limb of a number of many.

    The carry is kept as PTX keeps it for sums; for differences it is the borrow.
    """
    slot, dtype = decoded.destination(), decoded.dtype
    carry = decoded.decoder.special("carry")
    is_sum, takes_carry = decoded.stem.startswith("add"), decoded.stem.endswith("c")
    gives_carry = decoded.has("cc")
    left, right = decoded.source(1, dtype), decoded.source(2, dtype)
    if gives_carry:
        decoded.writes.append(carry)

    def execute(batch: Batch, group: Group) -> None:
        (a, a_known), (b, b_known) = left(batch, group), right(batch, group)
        known = a_known & b_known
        result = a + b if is_sum else a - b
        overflow = result < a if is_sum else a < b
        if takes_carry:
            before = batch.read(carry, group)
            known, step = known & before.known, before.bits.astype(dtype)
            # As a sum overflows if it is less than a term of it.
            overflow = overflow | ((result + step if is_sum else result) < step)
            result = result + step if is_sum else result - step
        batch.write(slot, group, Value(result, known))
        if gives_carry:
            batch.write(carry, group, Value(overflow, known))

    return execute


def _add(decoded: Decoded) -> Execute:
    is_chained = decoded.has("cc") or decoded.stem in ("addc", "subc")
    return _chained_sum(decoded) if is_chained else exactly(_sum)(decoded)


# ---- Products ------------------------------------------------------------------------


def _high_product(a: Bits, b: Bits) -> Bits:
    """The upper 64 bits of the product of two numbers of 64 bits."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    cross = (a >> half) * (b & low) + ((a & low) * (b & low) >> half)
    other = (a & low) * (b >> half) + (cross & low)
    result: Bits = (a >> half) * (b >> half) + (cross >> half) + (other >> half)
    return result


def _product(decoded: Decoded, a: Bits, b: Bits) -> Bits:
    kind = decoded.type
    if decoded.has("lo"):
        return a * b
    if kind.bits < 64:
        wide = f"{'i' if kind.kind == 's' else 'u'}{2 * kind.bytes}"
        result: Bits = kind.numbers(a).astype(wide) * kind.numbers(b)
        return result >> kind.bits if decoded.has("hi") else result
    result = _high_product(a, b)
    if kind.kind == "s":
        zero = np.uint64(0)
        result = result - np.where(signed(a) < 0, b, zero)
        result = result - np.where(signed(b) < 0, a, zero)
    return result


def _multiply(decoded: Decoded) -> Execute:
    """`mul` and `mad`. A factor that is known to be zero decides a product alone."""
    dtype, is_wide = decoded.dtype, decoded.one_of(("lo", "hi", "wide")) == "wide"
    carries = decoded.has("cc") or decoded.stem == "madc"
    if carries or decoded.has("sat") or (is_wide and dtype.itemsize == 8):
        raise UnmodelledError
    sum_type = np.dtype(f"u{dtype.itemsize * (2 if is_wide else 1)}")

    def multiply(a: Value, b: Value, *addends: Value) -> Value:
        bits = _product(decoded, a.bits, b.bits).astype(sum_type, copy=False)
        known = decided(a, b, lambda factor: factor == 0)
        for each in addends:
            bits, known = bits + each.bits, known & each.known
        return Value(bits, known)

    operands = [decoded.source(1, dtype), decoded.source(2, dtype)]
    operands += [decoded.source(place, sum_type) for place in range(3, decoded.count)]
    return compute(decoded.destination(), operands, multiply)


# ---- The rest ------------------------------------------------------------------------


def _quotient(decoded: Decoded, a: Value, b: Value) -> Value:
    """`div` and `rem`: towards zero; what division by zero gives is unknown."""
    known = a.known & b.known & (b.bits != 0)
    wants_rest = decoded.stem == "rem"
    left, right = a.bits, np.where(b.bits == 0, b.bits.dtype.type(1), b.bits)
    if decoded.type.kind != "s":
        return Value(left % right if wants_rest else left // right, known)
    negative = signed(left) < 0
    if not wants_rest:
        negative = negative != (signed(right) < 0)
    left, right = _magnitude(left), _magnitude(right)
    result = left % right if wants_rest else left // right
    return Value(np.where(negative, -result, result), known)


def _extreme(pick: np.ufunc, decoded: Decoded, a: Bits, b: Bits) -> Bits:
    result: Bits = pick(decoded.type.numbers(a), decoded.type.numbers(b))
    return np.maximum(result, 0) if decoded.has("relu") else result


def _sum_of_difference(decoded: Decoded, a: Bits, b: Bits, c: Bits) -> Bits:
    """`sad`."""
    is_less = decoded.type.numbers(a) < decoded.type.numbers(b)
    return np.where(is_less, b - a, a - b) + c


ARITHMETIC: dict[str, Builder] = {
    **dict.fromkeys(("add", "addc", "sub", "subc"), _add),
    **dict.fromkeys(("mul", "mad", "madc"), _multiply),
    **dict.fromkeys(("div", "rem"), of_values(_quotient)),
    "abs": exactly(lambda decoded, a: _magnitude(a)),
    "neg": exactly(lambda decoded, a: -a),
    "min": exactly(partial(_extreme, np.minimum)),
    "max": exactly(partial(_extreme, np.maximum)),
    "sad": exactly(_sum_of_difference),
}
