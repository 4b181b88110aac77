"""How the tensor cores of an H100 multiply and add, bit for bit.

They add the products and the accumulator of one element of the result at once, in
fixed point: every term is aligned to the largest exponent and truncated 25 bits below
it. The sum is exact, and is then truncated to a float32 or rounded to the nearest
float16. The exponent of a product is the sum of its factors' exponents, even if their
significands multiply to 2 or more. The tensor cores of other GPUs round differently.

References:
    Khattak & Mikaitis 2025, Accurate models of NVIDIA tensor cores, arXiv:2512.07004
    Xie et al. 2025, MMA-Sim, arXiv:2511.10909
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from compare.ptx_simulator.floats import F64, FORMATS, Numbers, bits_of, numbers_of
from compare.ptx_simulator.values import U32, U64, Bits

_KEPT_BITS = 25  # below the exponent of the largest term
_EXPONENT_OF_ZERO = -10_000  # below that of any product
_LEAST_OF_PRODUCTS = -300  # any scale will do if all terms are zero
_FLOAT64_BIAS, _FLOAT64_FRACTION = 1023, 52
_TF32_BITS = U32.type(0xFFFF_E000)  # of a float32, those that count
_CUT_OFF_BITS = U64.type((1 << 29) - 1)  # of a float64, those that a float32 lacks

# Products that are computed at a time: more of them leave the caches.
_PRODUCTS_AT_ONCE = 1 << 17


class _Terms(NamedTuple):
    """Numbers as the tensor cores see them.

    Attributes:
        numbers: float64.
        exponents: int16. A subnormal number has that of the smallest normal one.
    """

    numbers: Numbers
    exponents: npt.NDArray[np.int16]

    def at(self, index: Any) -> "_Terms":
        """Those that an index picks."""
        return _Terms(self.numbers[index], self.exponents[index])


def multiply_add(a: Bits, b: Bits, c: Bits, inputs: str, sums: str) -> Bits:
    """The bits of a times b plus c, for many matrices of the same shape.

    Args:
        a: by depth, number of the matrix, and row.
        b: by depth, number of the matrix, and column.
        c: by number of the matrix, row and column.
        inputs: the format of the elements of a and b: `f16`, `bf16` or `tf32`.
        sums: that of the elements of c and of the result: `f16` or `f32`.
    """
    depth, count, rows = a.shape
    left, right, addends = _terms(a, inputs), _terms(b, inputs), _terms(c, sums)
    result = np.empty_like(c)
    at_once = max(1, _PRODUCTS_AT_ONCE // (depth * rows * c.shape[2]))
    for first in range(0, count, at_once):
        some = slice(first, first + at_once)
        rows_of, columns_of = np.s_[:, some, :, np.newaxis], np.s_[:, some, np.newaxis]
        exact = _sums(left.at(rows_of), right.at(columns_of), addends.at(some))
        if sums == "f32":
            exact = _truncated(exact)
        result[some] = bits_of(exact, FORMATS[sums])
    return result


def _terms(bits: Bits, name: str) -> _Terms:
    if name == "tf32":
        bits = bits & _TF32_BITS
    numbers = numbers_of(bits, FORMATS[name])
    float32 = np.ascontiguousarray(numbers).view(U32)
    exponents = (float32 >> 23 & 0xFF).astype(np.int16) - np.int16(127)
    np.maximum(exponents, np.int16(FORMATS[name].least), out=exponents)
    exponents[numbers == 0] = _EXPONENT_OF_ZERO
    return _Terms(numbers.astype(F64), exponents)


def _sums(a: _Terms, b: _Terms, c: _Terms) -> Numbers:
    """The exact sums of the truncated terms, in float64.

    A truncated product is an integer below 2^27, so that a sum fits. Infinities and
    NaN, which truncation leaves as they are, spread by the rules of float64.
    """
    exponents = (a.exponents + b.exponents).max(axis=0)
    np.maximum(exponents, c.exponents, out=exponents)
    largest = np.maximum(exponents, np.int16(_LEAST_OF_PRODUCTS)).astype(np.int64)
    scale = _power_of_two(_KEPT_BITS - largest)
    terms = a.numbers * b.numbers
    terms *= scale
    np.trunc(terms, out=terms)
    total: Numbers = terms.sum(axis=0, initial=0.0)  # so that -0 becomes 0
    total += np.trunc(c.numbers * scale)
    total *= _power_of_two(largest - _KEPT_BITS)
    return total


def _power_of_two(exponents: npt.NDArray[np.int64]) -> Numbers:
    power: Numbers = ((exponents + _FLOAT64_BIAS) << _FLOAT64_FRACTION).view(F64)
    return power


def _truncated(sums: Numbers) -> Numbers:
    """The next float32 towards zero; a sum of 2^128 or more is left to be infinite."""
    kept = (sums.view(U64) & ~_CUT_OFF_BITS).view(F64)
    subnormal = np.trunc(kept * 2.0**149) * 2.0**-149
    return np.where(np.abs(kept) < 2.0**-126, subnormal, kept)
