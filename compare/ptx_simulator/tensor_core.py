"""How the tensor cores of an H100 multiply and add, bit for bit.

They add the products and the accumulator of one element of the result at once, in
fixed point: every term is aligned to the largest exponent and truncated 25 bits below
it. The sum is exact, and is then truncated to a float32 or rounded to the nearest
float16. The exponent of a product is the sum of its factors' exponents, even if their
significands multiply to 2 or more. Of products of 8-bit numbers only 13 bits below the
largest exponent are kept, and as many of the sum: so an H200 does it. The tensor cores
of other GPUs round differently.

References:
    Khattak & Mikaitis 2025, Accurate models of NVIDIA tensor cores, arXiv:2512.07004
    Xie et al. 2025, MMA-Sim, arXiv:2511.10909
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from compare.ptx_simulator.floats import F64, SCALARS, Numbers, bits_of, numbers_of
from compare.ptx_simulator.values import U32, U64, Bits

# Below the exponent of the largest term, by the bits of a factor.
_KEPT_BITS = {8: 13, 16: 25, 32: 25}
_EXPONENT_OF_ZERO = -10_000  # below that of any product
_LEAST_OF_PRODUCTS = -300  # any scale will do if all terms are zero
_FLOAT64_BIAS, _FLOAT64_FRACTION = 1023, 52
_TF32_BITS = U32.type(0xFFFF_E000)  # of a float32, those that count
_FLOAT32_FRACTION = 23

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


def multiply_add(a: Bits, b: Bits, c: Bits, inputs: tuple[str, str], sums: str) -> Bits:
    """The bits of a times b plus c, for many matrices of the same shape.

    Args:
        a: by depth, number of the matrix, and row.
        b: by depth, number of the matrix, and column.
        c: by number of the matrix, row and column.
        inputs: the formats of the elements of a and of b: both `f16`, both `bf16`,
            both `tf32`, or each `e4m3` or `e5m2`.
        sums: that of the elements of c and of the result: `f16` or `f32`.
    """
    depth, count, rows = a.shape
    left, right = (_terms(x, form) for x, form in zip((a, b), inputs, strict=True))
    addends, kept_bits = _terms(c, sums), _KEPT_BITS[SCALARS[inputs[0]].width]
    result = np.empty_like(c)
    at_once = max(1, _PRODUCTS_AT_ONCE // (depth * rows * c.shape[2]))
    for first in range(0, count, at_once):
        some = slice(first, first + at_once)
        rows_of, columns_of = np.s_[:, some, :, np.newaxis], np.s_[:, some, np.newaxis]
        factors = left.at(rows_of), right.at(columns_of)
        exact = _sums(*factors, addends.at(some), kept_bits)
        if sums == "f32":
            exact = _truncated(exact, min(kept_bits, _FLOAT32_FRACTION))
        result[some] = bits_of(exact, SCALARS[sums])
    return result


def _terms(bits: Bits, name: str) -> _Terms:
    if name == "tf32":
        bits = bits & _TF32_BITS
    numbers = numbers_of(bits, SCALARS[name])
    float32 = np.ascontiguousarray(numbers).view(U32)
    exponents = (float32 >> 23 & 0xFF).astype(np.int16) - np.int16(127)
    np.maximum(exponents, np.int16(SCALARS[name].least), out=exponents)
    exponents[numbers == 0] = _EXPONENT_OF_ZERO
    return _Terms(numbers.astype(F64), exponents)


def _sums(a: _Terms, b: _Terms, c: _Terms, kept_bits: int) -> Numbers:
    """The exact sums of the truncated terms, in float64.

    A truncated product is an integer below 2^27, so that a sum fits. Infinities and
    NaN, which truncation leaves as they are, spread by the rules of float64.
    """
    exponents = (a.exponents + b.exponents).max(axis=0)
    np.maximum(exponents, c.exponents, out=exponents)
    largest = np.maximum(exponents, np.int16(_LEAST_OF_PRODUCTS)).astype(np.int64)
    scale = _power_of_two(kept_bits - largest)
    terms = a.numbers * b.numbers
    terms *= scale
    np.trunc(terms, out=terms)
    total: Numbers = terms.sum(axis=0, initial=0.0)  # so that -0 becomes 0
    total += np.trunc(c.numbers * scale)
    total *= _power_of_two(largest - kept_bits)
    return total


def _power_of_two(exponents: npt.NDArray[np.int64]) -> Numbers:
    power: Numbers = ((exponents + _FLOAT64_BIAS) << _FLOAT64_FRACTION).view(F64)
    return power


def _truncated(sums: Numbers, fraction: int) -> Numbers:
    """The next float32 towards zero, with so many bits of fraction.

    A sum of 2^128 or more is left to be infinite.
    """
    cut_off = U64.type((1 << _FLOAT64_FRACTION - fraction) - 1)
    kept = (sums.view(U64) & ~cut_off).view(F64)
    subnormal = np.trunc(kept * 2.0**149) * 2.0**-149
    return np.where(np.abs(kept) < 2.0**-126, subnormal, kept)
