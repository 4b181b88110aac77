"""Instructions that shift, pick and count bits, as the PTX manual defines them."""

from functools import reduce

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.building import Builder, Execute, Function, exactly
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import Decoded, parse_integer
from compare.ptx_simulator.values import (
    U8,
    U32,
    U64,
    Bits,
    Dtype,
    Value,
    both,
    either,
    settled,
    signed,
    unsigned,
)


def _limited(amount: Bits, most: int, dtype: Dtype) -> Bits:
    """An amount of bits, no more than there are, of the type that is shifted."""
    limited: Bits = np.minimum(amount, most).astype(dtype)
    return limited


def _ones(count: Bits, dtype: Dtype) -> Bits:
    """Numbers whose lowest bits are ones, as many as asked for."""
    width = 8 * dtype.itemsize
    unused = _limited(width - count, width - 1, dtype)
    ones: Bits = np.full(1, (1 << width) - 1, dtype) >> unused
    return np.where(count == 0, dtype.type(0), ones)


# ---- Shifts --------------------------------------------------------------------------


def shift_right(bits: Bits, amount: Bits, *, is_signed: bool) -> Bits:
    """Shifts as PTX does: by more bits than there are, only zeros or signs remain."""
    width = 8 * bits.dtype.itemsize
    if is_signed:
        numbers = signed(bits)
        return unsigned(numbers >> _limited(amount, width - 1, numbers.dtype))
    shifted = bits >> _limited(amount, width - 1, bits.dtype)
    return np.where(amount < width, shifted, bits.dtype.type(0))


def shift_left(bits: Bits, amount: Bits) -> Bits:
    """Shifts as PTX does: by more bits than there are, only zeros remain."""
    width = 8 * bits.dtype.itemsize
    shifted = bits << _limited(amount, width - 1, bits.dtype)
    return np.where(amount < width, shifted, bits.dtype.type(0))


def _shift_right(decoded: Decoded) -> Function:
    is_signed = decoded.type.kind == "s"
    return lambda bits, amount: shift_right(bits, amount, is_signed=is_signed)


def _funnel_shift(decoded: Decoded) -> Function:
    def funnel(low: Bits, high: Bits, amount: Bits) -> Bits:
        pair = high.astype(U64) << 32 | low.astype(U64)
        wraps, goes_left = decoded.has("wrap"), decoded.has("l")
        step = (amount % 32 if wraps else np.minimum(amount, 32)).astype(U64)
        shifted: Bits = pair << step >> 32 if goes_left else pair >> step
        return shifted.astype(U32)

    return funnel


# ---- Logic ---------------------------------------------------------------------------


def _logic(combine: np.ufunc, deciding: int) -> Builder:
    """`and`, `or`: an operand of zeros, or of ones, decides the result alone."""

    def build(decoded: Decoded) -> Execute | None:
        slot, dtype = decoded.destination(), decoded.type.dtype
        if slot is None or dtype is None:
            return None
        left, right = decoded.source(1, dtype), decoded.source(2, dtype)

        def execute(batch: Batch, group: Group) -> None:
            (a, a_known), (b, b_known) = left(batch, group), right(batch, group)
            known = both(a_known, b_known)
            if known is not True:
                # ~0 is True for a predicate, and all ones for a number.
                value = ~np.zeros(1, dtype) if deciding else np.zeros(1, dtype)
                decided = either(both(a_known, a == value), both(b_known, b == value))
                known = settled(either(known, decided))
            if known is False:
                batch.forget(slot, group)
                return
            batch.write(slot, group, Value(combine(a, b), known))

        return execute

    return build


def _look_up(decoded: Decoded) -> Function | None:
    """`lop3`: any function of three bits, given as a table of eight."""
    table = parse_integer(decoded.text(4)) if decoded.count == 5 else None
    if table is None:
        return None

    def look_up(a: Bits, b: Bits, c: Bits, _table: Bits) -> Bits:
        terms = (
            (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
            for row in range(8)
            if table >> row & 1
        )
        return reduce(np.bitwise_or, terms, np.zeros(1, U32))

    return look_up


# ---- Fields --------------------------------------------------------------------------


def _extract(decoded: Decoded) -> Function:
    """`bfe`: some bits, with the sign of the uppermost or with zeros before them."""
    is_signed = decoded.type.kind == "s"

    def extract(bits: Bits, start: Bits, length: Bits) -> Bits:
        width = 8 * bits.dtype.itemsize
        start, length = start & 0xFF, np.minimum(length & 0xFF, width)
        field = shift_right(bits, start, is_signed=is_signed)
        above = width - length
        return shift_right(shift_left(field, above), above, is_signed=is_signed)

    return extract


def _insert(source: Bits, into: Bits, start: Bits, length: Bits) -> Bits:
    """`bfi`: the lowest bits of one number in the place of some of another."""
    width = 8 * source.dtype.itemsize
    field = _ones(np.minimum(length & 0xFF, width), source.dtype)
    place = shift_left(field, start & 0xFF)
    return into & ~place | shift_left(source, start & 0xFF) & place


def _mask(decoded: Decoded) -> Function:
    """`bmsk`: ones from some bit on."""

    def mask(start: Bits, length: Bits) -> Bits:
        if decoded.has("wrap"):
            start, length = start % 32, length % 32
        return shift_left(_ones(np.minimum(length, 32), U32), start)

    return mask


def _extend(decoded: Decoded) -> Function:
    """`szext`: the lowest bits, with the sign of the uppermost or with zeros."""
    is_signed = decoded.type.kind == "s"

    def extended(bits: Bits, length: Bits) -> Bits:
        length = length % 32 if decoded.has("wrap") else np.minimum(length, 32)
        above = 32 - length
        return shift_right(shift_left(bits, above), above, is_signed=is_signed)

    return extended


_PERMUTATIONS = {
    "f4e": lambda first, place: first + place,
    "b4e": lambda first, place: first - place & 7,
    "rc8": lambda first, place: first,
    "ecl": lambda first, place: np.maximum(first, place),
    "ecr": lambda first, place: np.minimum(first, place),
    "rc16": lambda first, place: (first & 1) * 2 + place % 2,
}


def _permute(decoded: Decoded) -> Function:
    """`prmt`: four of the eight bytes of two registers."""
    mode = next((each for each in decoded.modifiers if each in _PERMUTATIONS), None)

    def permute(a: Bits, b: Bits, selector: Bits) -> Bits:
        pair = b.astype(U64) << 32 | a.astype(U64)
        result = np.zeros(1, U64)
        for place in range(4):
            if mode:
                choice = _PERMUTATIONS[mode](selector & 3, place)
            else:
                choice = selector >> 4 * place & 0xF
            byte = pair >> (8 * (choice & 7)).astype(U64) & 0xFF
            sign = np.where(byte & 0x80, U64.type(0xFF), U64.type(0))
            result = result | np.where(choice & 8, sign, byte) << 8 * place
        return result.astype(U32)

    return permute


# ---- Counts --------------------------------------------------------------------------


def _length(bits: Bits) -> Bits:
    """How many bits a number has without its leading zeros."""
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


def _reverse(bits: Bits) -> Bits:
    rows = np.packbits(_bits_of(bits)[:, ::-1], axis=1, bitorder="little")
    return rows.view(bits.dtype).reshape(-1)


def _find_highest(decoded: Decoded) -> Function:
    """`bfind`: the highest bit that tells something; all ones if there is none."""
    width = decoded.type.bits

    def find(bits: Bits) -> Bits:
        if decoded.type.kind == "s":
            bits = np.where(signed(bits) < 0, ~bits, bits)
        length = _length(bits)
        found = width - length if decoded.has("shiftamt") else length - 1
        return np.where(length == 0, U32.type(0xFFFFFFFF), found.astype(U32))

    return find


BITWISE: dict[str, Builder] = {
    "and": _logic(np.bitwise_and, deciding=0),
    "or": _logic(np.bitwise_or, deciding=1),
    "xor": exactly(lambda decoded: np.bitwise_xor),
    "not": exactly(lambda decoded: np.invert),
    "cnot": exactly(lambda decoded: lambda bits: bits == 0),
    "lop3": exactly(_look_up),
    "shl": exactly(lambda decoded: shift_left, None, U32),
    "shr": exactly(_shift_right, None, U32),
    "shf": exactly(_funnel_shift, None, None, U32),
    "bfe": exactly(_extract, None, U32, U32),
    "bfi": exactly(lambda decoded: _insert, None, None, U32, U32),
    "bmsk": exactly(_mask),
    "szext": exactly(_extend, None, U32),
    "prmt": exactly(_permute),
    "popc": exactly(lambda decoded: lambda bits: _bits_of(bits).sum(axis=1)),
    "clz": exactly(lambda decoded: lambda bits: decoded.type.bits - _length(bits)),
    "brev": exactly(lambda decoded: _reverse),
    "bfind": exactly(_find_highest),
}
