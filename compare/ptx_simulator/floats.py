"""Floating-point formats: what the bits in registers stand for, and how to round.

Numbers are float32, those of `f64` float64. What is computed of them may be float64, to
be rounded once to the fewer bits that a format has.
"""

import math
import operator
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from compare.ptx_simulator.operands import Decoded, UnmodelledError
from compare.ptx_simulator.values import U8, U32, U64, Bits, Dtype, Value, unknown

# float32 or float64; of a format with several numbers in a register a row for each lane
Numbers = npt.NDArray[Any]

U16: Dtype = np.dtype(np.uint16)
F16: Dtype = np.dtype(np.float16)
F32: Dtype = np.dtype(np.float32)
F64: Dtype = np.dtype(np.float64)

# glibc keeps what it gets back for the next array only if it once got back more. Else
# each array of float64 is new to the system, page by page, which takes several times as
# long as what is computed in it.
np.empty(1 << 21)


# ---- Formats -------------------------------------------------------------------------


@dataclass(frozen=True)
class Format:
    """A format of floating-point numbers."""

    name: str
    width: int  # bits of a number
    precision: int  # bits of its significand, the leading one included
    least: int  # the exponent of the smallest normal number
    largest: float  # the greatest finite number
    nan: int  # the bits of the NaN that instructions make
    count: int = 1  # numbers in a register

    @property
    def dtype(self) -> Dtype:
        """The numpy type of a register's bits."""
        return np.dtype(f"u{self.width * self.count // 8}")


_SCALARS = (
    Format("f64", 64, 53, -1022, float(np.finfo(F64).max), nan=(1 << 63) - 1),
    Format("f32", 32, 24, -126, float(np.finfo(F32).max), nan=0x7FFF_FFFF),
    # A float32 whose lowest 13 bits are zeros.
    Format("tf32", 32, 11, -126, (2 - 2.0**-10) * 2.0**127, nan=0x7FFF_E000),
    Format("bf16", 16, 8, -126, (2 - 2.0**-7) * 2.0**127, nan=0x7FFF),
    Format("f16", 16, 11, -14, 65504.0, nan=0x7FFF),
    Format("e5m2", 8, 3, -14, 57344.0, nan=0x7F),
    # Without infinities: their exponent is one of numbers, too.
    Format("e4m3", 8, 4, -6, 448.0, nan=0x7F),
)
_PAIRED = ("f32", "bf16", "f16", "e5m2", "e4m3")

# By the names that opcodes have for them. Single numbers of 8 bits are for tensor cores
# alone.
SCALARS = {each.name: each for each in _SCALARS}
FORMATS = {
    **{each.name: each for each in _SCALARS if each.width > 8},
    **{f"{e.name}x2": replace(e, count=2) for e in _SCALARS if e.name in _PAIRED},
}


def formats_of(decoded: Decoded, allowed: Container[str]) -> list[Format]:
    """The formats that an opcode names, in order.

    Args:
        decoded: the instruction.
        allowed: the other parts that its opcode may have.

    Raises:
        UnmodelledError: it names none, more than two, or has another part.
    """
    names = [each for each in decoded.modifiers if each not in allowed]
    if len(names) not in (1, 2) or not all(each in FORMATS for each in names):
        raise UnmodelledError
    return [FORMATS[each] for each in names]


def format_of(decoded: Decoded, allowed: Container[str]) -> Format:
    """The one format of an instruction; see `formats_of`."""
    form, *others = formats_of(decoded, allowed)
    if others:
        raise UnmodelledError
    return form


def where_known(function: Callable[..., Bits], dtype: Dtype) -> Callable[..., Value]:
    """A function of values, known where all of them are.

    Where none is known, nothing is computed: so it is with floating point in all
    kernels whose tensors have no contents.

    Args:
        function: of the bits of the values.
        dtype: of the result.
    """

    def of_values(*values: Value) -> Value:
        known = reduce(operator.and_, (each.known for each in values))
        if known is False:
            return unknown(dtype)
        return Value(function(*(each.bits for each in values)), known)

    return of_values


# ---- From bits to numbers ------------------------------------------------------------

# numpy's own conversion takes more than twice as long as a table.
_HALVES: Numbers = np.arange(1 << 16, dtype=U16).view(F16).astype(F32)
_BYTES: Bits = np.arange(1 << 8, dtype=U16)
# The exponent of e5m2 is that of f16, and 8 more than that of e4m3.
_FIVE_TWO = _HALVES.take(_BYTES << 8)
_FOUR_THREE = _HALVES.take((_BYTES & 0x80) << 8 | (_BYTES & 0x7F) << 7) * F32.type(256)
_FOUR_THREE[[0x7F, 0xFF]] = np.nan

_NUMBERS: dict[str, Callable[[Bits], Numbers]] = {
    "f64": lambda bits: bits.view(F64),
    "f32": lambda bits: bits.view(F32),
    "tf32": lambda bits: bits.view(F32),
    "bf16": lambda bits: np.left_shift(bits, U32.type(16), dtype=U32).view(F32),
    "f16": _HALVES.take,
    "e5m2": _FIVE_TWO.take,
    "e4m3": _FOUR_THREE.take,
}


def numbers_of(bits: Bits, form: Format) -> Numbers:
    """The numbers in registers; of several in one the lowest comes first."""
    if form.count > 1:
        parts = np.ascontiguousarray(bits).view(f"u{form.width // 8}")
        bits = parts.reshape(-1, form.count)
    return _NUMBERS[form.name](bits)


# ---- Rounding ------------------------------------------------------------------------

# To whole numbers, by the word that opcodes have for it.
TO_WHOLE: dict[str, Callable[[Numbers], Numbers]] = {
    "rn": np.rint,  # ties to even
    "rna": lambda numbers: np.trunc(numbers + np.copysign(0.5, numbers)),
    "rz": np.trunc,
    "rm": np.floor,
    "rp": np.ceil,
}


def mode_of(decoded: Decoded) -> str:
    """The way in which an instruction rounds to numbers of a format."""
    return next((each for each in decoded.modifiers if each in TO_WHOLE), "rn")


def rounded(numbers: Numbers, form: Format, mode: str = "rn") -> Numbers:
    """Numbers as a format has them.

    Args:
        numbers: float32 or float64; for `f64` there is nothing to round.
        form: the format.
        mode: `rn` and `rna` round to nearest, `rz` towards 0, `rm` down, `rp` up.
    """
    name, is_single = form.name, numbers.dtype == F32
    if name == "f64" or (name == "f32" and is_single):
        return numbers
    if mode == "rn" and (name == "f32" or (name == "f16" and is_single)):
        return numbers.astype(f"f{form.width // 8}")  # so numpy rounds
    if is_single and name in ("bf16", "tf32") and mode in ("rn", "rna", "rz"):
        return _shortened(numbers, 24 - form.precision, mode)
    return _quantized(numbers.astype(F64), form, mode)


def _shortened(numbers: Numbers, bits: int, mode: str) -> Numbers:
    """float32 rounded to a format with the same exponents, so many bits shorter.

    What is carried out of a significand goes into the exponent, up to infinity.
    """
    raw: Bits = numbers.view(U32)
    half = 1 << bits - 1
    if mode == "rn":
        raw = raw + ((raw >> bits & 1) + U32.type(half - 1))
    elif mode == "rna":
        raw = raw + U32.type(half)
    shortened: Bits = raw & U32.type((1 << 32) - (1 << bits))
    return shortened.view(F32)


def _quantized(numbers: Numbers, form: Format, mode: str) -> Numbers:
    """float64 rounded to a format that has fewer bits in every respect."""
    power = (numbers.view(U64) & U64.type(0x7FF << 52)).view(F64)
    # An infinite one would make NaN of infinity.
    power = np.clip(power, 2.0**form.least, 2.0**1000)
    unit = power * 2.0 ** (1 - form.precision)
    result: Numbers = TO_WHOLE[mode](numbers / unit) * unit
    is_beyond = np.abs(result) > form.largest
    if not is_beyond.any():
        return result
    goes_up = {"rz": False, "rm": numbers < 0, "rp": numbers > 0}.get(mode, True)
    bound = np.where(goes_up | np.isinf(numbers), np.inf, form.largest)
    return np.where(is_beyond, np.copysign(bound, numbers), result)


# ---- From numbers to bits ------------------------------------------------------------


def _upper_half(numbers: Numbers) -> Bits:
    bits: Bits = numbers.astype(F32, copy=False).view(U32) >> 16
    return bits.astype(U16)


def _four_three(numbers: Numbers) -> Bits:
    halves = (numbers * 2.0**-8).astype(F16).view(U16)
    return (halves >> 8 & 0x80 | halves >> 7 & 0x7F).astype(U8)


# Of numbers that the format has.
_BITS: dict[str, Callable[[Numbers], Bits]] = {
    "f64": lambda numbers: numbers.astype(F64, copy=False).view(U64),
    "f32": lambda numbers: numbers.astype(F32, copy=False).view(U32),
    "tf32": lambda numbers: numbers.astype(F32, copy=False).view(U32),
    "bf16": _upper_half,
    "f16": lambda numbers: numbers.astype(F16, copy=False).view(U16),
    "e5m2": lambda numbers: (numbers.astype(F16).view(U16) >> 8).astype(U8),
    "e4m3": _four_three,
}


def bits_of(numbers: Numbers, form: Format, mode: str = "rn") -> Bits:
    """The bits of numbers, rounded.

    A NaN becomes the one that the PTX manual calls canonical; only `f64` keeps what a
    NaN carries.
    """
    bits = _BITS[form.name](rounded(numbers, form, mode))
    if form.name != "f64":
        is_nan = np.isnan(numbers)
        if is_nan.any():
            bits = np.where(is_nan, bits.dtype.type(form.nan), bits)
    if form.count > 1:
        bits = np.ascontiguousarray(bits).view(form.dtype).reshape(-1)
    return bits


# ---- Modifiers -----------------------------------------------------------------------


def flushed(numbers: Numbers, form: Format, mode: str = "rn") -> Numbers:
    """`ftz`: zeros, with their sign, in place of subnormal numbers.

    What is yet to be rounded counts as it would be rounded if exponents had no end: so
    GPUs do it, while the PTX manual does not tell.
    """
    least, step = 2.0**form.least, 2.0**-form.precision
    nearest, next_to = least * (1 - step / 2), least * math.nextafter(1 - step, 1)
    # From where on numbers are rounded to the smallest normal one, of either sign.
    positive = {"rn": nearest, "rp": next_to}.get(mode, least)
    negative = {"rn": nearest, "rm": next_to}.get(mode, least)
    if positive == negative:
        are_small = np.abs(numbers) < positive
    else:
        are_small = (numbers < positive) & (numbers > -negative)
    if not are_small.any():
        return numbers
    result: Numbers = numbers * ~are_small
    return result


def limited(numbers: Numbers) -> Numbers:
    """`sat`: what is below 0, or NaN, becomes 0, and what is above 1 becomes 1."""
    result: Numbers = np.minimum(np.fmax(numbers, 0), 1) + 0  # makes -0 positive
    return result


def rectified(numbers: Numbers) -> Numbers:
    """`relu`: what is below 0 becomes 0; NaN stays."""
    result: Numbers = np.maximum(numbers, 0) + 0  # makes -0 positive
    return result
