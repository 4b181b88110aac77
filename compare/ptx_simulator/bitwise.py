"""Instructions that shift, pick and count bits, as the PTX manual defines them."""

from collections.abc import Callable
from functools import reduce

import numpy as np

from compare.ptx_simulator.building import Builder, Execute, exactly, of_values
from compare.ptx_simulator.operands import Decoded, UnmodelledError, parse_integer
from compare.ptx_simulator.values import (
    U8,
    U32,
    U64,
    Bits,
    Dtype,
    Known,
    Value,
    decided,
)

# ---- Shifts: by more bits than there are, only zeros or signs remain, as in numpy ----


def _shift_left(bits: Bits, amount: Bits) -> Bits:
    shifted: Bits = bits << _limited(amount, bits.dtype)
    return shifted


def _shift_right(decoded: Decoded, bits: Bits, amount: Bits) -> Bits:
    numbers = decoded.type.numbers(bits)
    shifted: Bits = numbers >> _limited(amount, numbers.dtype)
    return shifted


def _limited(amount: Bits, dtype: Dtype) -> Bits:
    """An amount of bits in the type that is shifted, which holds the sensible ones."""
    limited: Bits = np.minimum(amount, 8 * dtype.itemsize).astype(dtype)
    return limited


def _funnel_shift(decoded: Decoded, low: Bits, high: Bits, amount: Bits) -> Bits:
    pair = high.astype(U64) << 32 | low.astype(U64)
    amount = amount % 32 if decoded.has("wrap") else np.minimum(amount, 32)
    step = amount.astype(U64)
    shifted: Bits = pair << step >> 32 if decoded.has("l") else pair >> step
    return shifted


# ---- Logic ---------------------------------------------------------------------------

# An operand of zeros, or of ones, may decide the result alone.
LOGIC: dict[str, Callable[[Value, Value], Value]] = {
    "and": lambda a, b: Value(a.bits & b.bits, decided(a, b, lambda bits: bits == 0)),
    "or": lambda a, b: Value(a.bits | b.bits, decided(a, b, lambda bits: ~bits == 0)),
    "xor": lambda a, b: Value(a.bits ^ b.bits, a.known & b.known),
}


def _look_up(decoded: Decoded) -> Execute:
    """`lop3`: any function of three bits, given as a table of eight."""
    table = parse_integer(decoded.text(4)) if decoded.count == 5 else None
    if table is None:
        raise UnmodelledError
    rows = [row for row in range(8) if table >> row & 1]

    def look_up(decoded: Decoded, a: Bits, b: Bits, c: Bits, _table: Bits) -> Bits:
        terms = (
            (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
            for row in rows
        )
        return reduce(np.bitwise_or, terms, np.zeros(1, U32))

    return exactly(look_up)(decoded)


# ---- Fields --------------------------------------------------------------------------


def _field(decoded: Decoded, bits: Bits, length: Bits) -> Bits:
    """The lowest bits, with the sign of the uppermost or with zeros before them."""
    above = 8 * bits.dtype.itemsize - length
    return _shift_right(decoded, _shift_left(bits, above), above)


def _extract(decoded: Decoded, bits: Bits, start: Bits, length: Bits) -> Bits:
    """`bfe`: some bits, from anywhere."""
    length = np.minimum(length & 0xFF, decoded.type.bits)
    from_start = _shift_right(decoded, bits, start & 0xFF)
    return _field(decoded, from_start.view(bits.dtype), length)


def _extend(decoded: Decoded, bits: Bits, length: Bits) -> Bits:
    """`szext`: the lowest bits."""
    wraps = decoded.has("wrap")
    return _field(decoded, bits, length % 32 if wraps else np.minimum(length, 32))


def _insert(
    decoded: Decoded, source: Bits, into: Bits, start: Bits, length: Bits
) -> Bits:
    """`bfi`: the lowest bits of one number in the place of some of another."""
    field = _ones(np.minimum(length & 0xFF, decoded.type.bits), source.dtype)
    place = _shift_left(field, start & 0xFF)
    return into & ~place | _shift_left(source, start & 0xFF) & place


def _ones(count: Bits, dtype: Dtype) -> Bits:
    """Numbers whose lowest bits are ones, as many as asked for."""
    return ~_shift_left(~np.zeros(1, dtype), count)


def _mask(decoded: Decoded, start: Bits, length: Bits) -> Bits:
    """`bmsk`: ones from some bit on."""
    if decoded.has("wrap"):
        start, length = start % 32, length % 32
    return _shift_left(_ones(np.minimum(length, 32), U32), start)


_PERMUTATIONS: dict[str, Callable[[Bits, int], Bits]] = {
    "f4e": lambda first, place: first + place,
    "b4e": lambda first, place: first - place & 7,
    "rc8": lambda first, place: first,
    "ecl": lambda first, place: np.maximum(first, place),
    "ecr": lambda first, place: np.minimum(first, place),
    "rc16": lambda first, place: (first & 1) * 2 + place % 2,
}


def _permute(decoded: Decoded, a: Value, b: Value, selector: Value) -> Value:
    """`prmt`: four of the eight bytes of two registers."""
    pair = b.bits.astype(U64) << 32 | a.bits.astype(U64)
    result = np.zeros(1, U64)
    mode = decoded.modifiers[-1]
    choices = [
        _PERMUTATIONS[mode](selector.bits & 3, place)
        if mode in _PERMUTATIONS
        else selector.bits >> 4 * place & 0xF
        for place in range(4)
    ]
    for place, choice in enumerate(choices):
        byte = pair >> (8 * (choice & 7)).astype(U64) & 0xFF
        sign = np.where(byte & 0x80, U64.type(0xFF), U64.type(0))
        result = result | np.where(choice & 8, sign, byte) << 8 * place
    return Value(result, _is_permuted_known(a, b, selector, choices))


def _is_permuted_known(
    a: Value, b: Value, selector: Value, choices: list[Bits]
) -> Known:
    """Where the registers are known from which the selector picks bytes.

    To pick from one alone, compilers name one that nothing defines as the other.
    """
    known: Known = a.known & b.known & selector.known
    if known is not True:
        takes_none_of_a = reduce(np.bitwise_and, choices) & 4 != 0
        takes_none_of_b = reduce(np.bitwise_or, choices) & 4 == 0
        known = (a.known | takes_none_of_a) & (b.known | takes_none_of_b)
        known = selector.known & known
    return known


# ---- Counts --------------------------------------------------------------------------


def _length(bits: Bits) -> Bits:
    """The number of bits without the leading zeros."""
    wide = bits.astype(U64)
    high, low = wide >> 32, wide & 0xFFFFFFFF
    # Halves are exact as floating point, whose exponent is what is looked for.
    high_length, low_length = np.frexp(high * 1.0)[1], np.frexp(low * 1.0)[1]
    length: Bits = np.where(high, 32 + high_length, low_length)
    return length.astype(U32)


def _bits_of(bits: Bits) -> Bits:
    """One row for each number, its lowest bit first."""
    rows = np.ascontiguousarray(bits).view(U8).reshape(bits.size, -1)
    return np.unpackbits(rows, axis=1, bitorder="little")


def _reverse(decoded: Decoded, bits: Bits) -> Bits:
    """`brev`."""
    rows = np.packbits(_bits_of(bits)[:, ::-1], axis=1, bitorder="little")
    return rows.view(bits.dtype).reshape(-1)


def _find_highest(decoded: Decoded, bits: Bits) -> Bits:
    """`bfind`: the highest bit that tells something; all ones if there is none."""
    numbers = decoded.type.numbers(bits)
    length = _length(np.where(numbers < 0, ~bits, bits))
    found = decoded.type.bits - length if decoded.has("shiftamt") else length - 1
    return np.where(length == 0, U32.type(0xFFFFFFFF), found)


BITWISE: dict[str, Builder] = {
    **dict.fromkeys(LOGIC, of_values(lambda decoded, a, b: LOGIC[decoded.stem](a, b))),
    "not": exactly(lambda decoded, bits: ~bits),
    "cnot": exactly(lambda decoded, bits: bits == 0),
    "lop3": _look_up,
    "shl": exactly(lambda decoded, bits, amount: _shift_left(bits, amount), own=1),
    "shr": exactly(_shift_right, own=1),
    "shf": exactly(_funnel_shift),
    "bfe": exactly(_extract, own=1),
    "bfi": exactly(_insert, own=2),
    "bmsk": exactly(_mask),
    "szext": exactly(_extend),
    "prmt": of_values(_permute),
    "popc": exactly(lambda decoded, bits: _bits_of(bits).sum(axis=1)),
    "clz": exactly(lambda decoded, bits: decoded.type.bits - _length(bits)),
    "brev": exactly(_reverse),
    "bfind": exactly(_find_highest),
}
