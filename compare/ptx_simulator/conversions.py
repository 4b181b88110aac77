"""Conversions between types of numbers, as the PTX manual defines them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from compare.ptx_simulator.building import Builder, Execute, compute
from compare.ptx_simulator.floats import (
    F64,
    FORMATS,
    TO_WHOLE,
    Format,
    Numbers,
    bits_of,
    flushed,
    limited,
    mode_of,
    numbers_of,
    rectified,
    where_known,
)
from compare.ptx_simulator.operands import Decoded, UnmodelledError
from compare.ptx_simulator.values import U64, Bits, Dtype, PtxType, parse_type

_TO_WHOLE = {f"{mode}i": TO_WHOLE[mode] for mode in ("rn", "rz", "rm", "rp")}
_MODIFIERS = (*TO_WHOLE, *_TO_WHOLE, "ftz", "sat", "satfinite", "relu")

# From what is read to what is written, both as bits.
Conversion = Callable[[Bits], Bits]


def _convert(decoded: Decoded) -> Execute:
    """`cvt`."""
    names = [each for each in decoded.modifiers if each not in _MODIFIERS]
    if len(names) != 2:
        raise UnmodelledError
    to, source = map(_type, names)
    if decoded.count == 3:
        return _convert_two(decoded, to, source)
    if isinstance(source, Format):
        if isinstance(to, Format):
            conversion = _between_formats(decoded, to, source)
        else:
            conversion = _to_integer(decoded, to, source)
    elif isinstance(to, Format):
        conversion = _from_integer(decoded, to, source)
    else:
        conversion = _between_integers(decoded, to, source)
    return compute(
        decoded.destination(),
        [decoded.source(1, _dtype(source))],
        where_known(conversion, _dtype(to)),
    )


def _type(name: str) -> Format | PtxType:
    """The format, or the type of integers, that an opcode names."""
    if name in FORMATS:
        return FORMATS[name]
    found = parse_type(name)
    if found is None or found.kind not in ("u", "s"):
        raise UnmodelledError
    return found


def _dtype(kind: Format | PtxType) -> Dtype:
    assert kind.dtype is not None  # there is one for all integers
    return kind.dtype


def _integers(kind: PtxType) -> Dtype:
    """The numpy type of numbers, with their sign."""
    return np.dtype(f"{'i' if kind.kind == 's' else 'u'}{kind.bytes}")


# ---- To formats of floating point ----------------------------------------------------


def _convert_two(
    decoded: Decoded, to: Format | PtxType, source: Format | PtxType
) -> Execute:
    """`cvt` of two numbers into one register, the first into its upper half."""
    if not (isinstance(to, Format) and isinstance(source, Format) and to.count == 2):
        raise UnmodelledError
    convert = _between_formats(decoded, replace(to, count=1), source)

    def convert_two(high: Bits, low: Bits) -> Bits:
        upper = convert(high).astype(to.dtype) << to.width
        result: Bits = upper | convert(low)
        return result

    operands = [decoded.source(place, source.dtype) for place in (1, 2)]
    return compute(decoded.destination(), operands, where_known(convert_two, to.dtype))


def _between_formats(decoded: Decoded, to: Format, source: Format) -> Conversion:
    is_bounded = decoded.has("satfinite")
    if to.count != source.count or (to.width == 8 and not is_bounded):
        raise UnmodelledError
    mode, whole = mode_of(decoded), _whole(decoded)
    flushes, limits = decoded.has("ftz"), decoded.has("sat")
    rectifies = decoded.has("relu")

    def convert(bits: Bits) -> Bits:
        numbers = numbers_of(bits, source)
        if flushes and source.name == "f32":
            numbers = flushed(numbers, source)
        if whole:
            numbers = whole(numbers)
        if limits:
            numbers = limited(numbers)
        if rectifies:
            numbers = rectified(numbers)
        if is_bounded:
            numbers = np.clip(numbers, -to.largest, to.largest)
        if flushes and to.name == "f32":
            numbers = flushed(numbers, to, mode)
        return bits_of(numbers, to, mode)

    return convert


def _whole(decoded: Decoded) -> Callable[[Numbers], Numbers] | None:
    """How an opcode rounds to whole numbers, if it does."""
    found = (_TO_WHOLE[each] for each in decoded.modifiers if each in _TO_WHOLE)
    return next(found, None)


def _from_integer(decoded: Decoded, to: Format, source: PtxType) -> Conversion:
    mode, limits = mode_of(decoded), decoded.has("sat")
    if to.count > 1 or (to.name == "f64" and source.bits == 64 and mode != "rn"):
        raise UnmodelledError
    to_odd = source.bits == 64 and to.name != "f64"

    def convert(bits: Bits) -> Bits:
        integers = source.numbers(bits)
        numbers = _rounded_to_odd(integers) if to_odd else integers.astype(F64)
        return bits_of(limited(numbers) if limits else numbers, to, mode)

    return convert


def _rounded_to_odd(integers: Bits) -> Numbers:
    """Integers of 64 bits as float64 that may be rounded once more.

    Of the two numbers beside an integer that float64 does not have, it is the one whose
    last bit is 1, as in sums.
    """
    is_exact = ((integers >> 53) + 1).view(U64) <= 1
    numbers: Numbers = integers.astype(F64)
    if is_exact.all():
        return numbers
    odd = integers >> 11 | (integers & 0x7FF != 0)
    return np.where(is_exact, numbers, odd.astype(F64) * 2.0**11)


# ---- To integers ---------------------------------------------------------------------


def _to_integer(decoded: Decoded, to: PtxType, source: Format) -> Conversion:
    """To the nearest number that the type has."""
    whole, flushes = _whole(decoded), decoded.has("ftz")
    if whole is None or source.count > 1:
        raise UnmodelledError
    dtype = _integers(to)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    is_wide = source.name == "f64" or to.bits == 64
    of_nan = (least or 1 << to.bits - 1) if is_wide else 0

    def convert(bits: Bits) -> Bits:
        numbers = numbers_of(bits, source)
        if flushes:
            numbers = flushed(numbers, source)
        numbers = whole(numbers)
        integers = np.fmax(numbers, float(least)).astype(dtype)
        # float(most) may be one more, and so too much to be converted.
        for replaced, integer in (
            (numbers >= float(most), most),
            (np.isnan(numbers), of_nan),
        ):
            if replaced.any():
                integers = np.where(replaced, dtype.type(integer), integers)
        return integers

    return convert


def _between_integers(decoded: Decoded, to: PtxType, source: PtxType) -> Conversion:
    limits = _common_range(to, source) if decoded.has("sat") else None

    def convert(bits: Bits) -> Bits:
        numbers = source.numbers(bits)
        if limits:
            numbers = np.clip(numbers, *limits)
        return to.numbers(numbers.astype(_dtype(to)))

    return convert


def _common_range(*kinds: PtxType) -> tuple[int, int]:
    """The least and the greatest number that all of these types have."""
    ranges = [np.iinfo(_integers(each)) for each in kinds]
    return max(each.min for each in ranges), min(each.max for each in ranges)


CONVERSIONS: dict[str, Builder] = {"cvt": _convert}
