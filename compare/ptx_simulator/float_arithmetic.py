"""Floating-point arithmetic, as the PTX manual defines it.

Sums, products, quotients, square roots and `fma` are rounded once, as IEEE 754 asks
for. Where the manual allows for an error, the result is here that of the function
itself, rounded to nearest; a GPU's last bits differ. Of float32 it allows for

* 1 ulp in `rcp.approx`, 2 in `div.approx`, `div.full` and `ex2.approx`;
* a relative error of 2^-22.9 in `rsqrt.approx`, 2^-23 in `sqrt.approx`, 2^-11 in
  `tanh.approx`, 2^-22 in `lg2.approx`, between 0.5 and 2 an absolute one of as much;
* an absolute error of 2^-20.5 in `sin.approx` and `cos.approx` from -2 pi to 2 pi.

Of f16 and bf16 it is in `ex2.approx` a relative one of 2^-9.9 and 2^-7, in
`tanh.approx` an absolute one of 2^-10.987 and 2^-8. Of float64 `rcp.approx.ftz` and
`rsqrt.approx.ftz` give 20 bits, here cut off.

An assembler may fuse an `add` and a `mul` that name no rounding; here each is rounded.
"""

import math
from collections.abc import Callable
from functools import partial, reduce

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.building import Builder, Execute, compute
from compare.ptx_simulator.floats import (
    F32,
    F64,
    Format,
    Numbers,
    bits_of,
    flushed,
    format_of,
    formats_of,
    limited,
    mode_of,
    numbers_of,
    rectified,
    where_known,
)
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import Decoded, UnmodelledError
from compare.ptx_simulator.values import BOOL, U32, U64, Bits, Mask, Value, settled

# Of one number of each operand. Its result may be more exact than the format.
Function = Callable[..., Numbers]

_MODES = ("rn", "rz", "rm", "rp")
# Also of numbers of 16 bits and a float32, into which the former are turned first.
_MIXED = ("add", "sub", "fma")


def _elementwise(
    choose: Callable[[Decoded, Format], Function], *allowed: str
) -> Builder:
    """Builds instructions whose operands and result have a format.

    The last operand has that of the result, also where the opcode names a second one.

    Args:
        choose: returns the function.
        allowed: the parts that an opcode may have, besides formats.
    """

    def build(decoded: Decoded) -> Execute:
        form, *narrower = formats_of(decoded, allowed)
        if narrower and (decoded.stem not in _MIXED or form.name != "f32"):
            raise UnmodelledError
        count = decoded.count - 1
        forms = [*(narrower * (count - 1)), form] if narrower else [form] * count
        function, mode = choose(decoded, form), mode_of(decoded)
        flushes, limits = decoded.has("ftz"), decoded.has("sat")
        rectifies = decoded.has("relu")

        def apply(*operands: Bits) -> Bits:
            numbers = list(map(numbers_of, operands, forms))
            if flushes:
                numbers = [flushed(each, form) for each in numbers]
            result = function(*numbers)
            if limits:
                result = limited(result)
            if rectifies:
                result = rectified(result)
            if flushes:
                result = flushed(result, form, mode)
            return bits_of(result, form, mode)

        sources = [decoded.source(i + 1, each.dtype) for i, each in enumerate(forms)]
        return compute(decoded.destination(), sources, where_known(apply, form.dtype))

    return build


# ---- Rounded once, as IEEE 754 asks for ----------------------------------------------


def _sum_to_odd(a: Numbers, b: Numbers, mode: str) -> Numbers:
    """The sum of float64, such that it may be rounded once more.

    Of the two numbers beside an inexact sum it is the one whose last bit is 1. Where
    two bits less are kept, it lies on the same side of any tie as the sum itself.
    """
    if mode == "rm":  # a sum of nothing is -0, but of two +0
        return -_sum_to_odd(-a, -b, "rp")
    total = a + b
    back = total - a
    error = (a - (total - back)) + (b - back)
    is_inexact = (error > 0) | (error < 0)  # not NaN, as it is beside infinities
    is_beyond = (error > 0) != (total > 0)  # farther from 0 than the exact sum
    bits = total.view(U64)
    odd: Bits = bits - (is_inexact & is_beyond) | is_inexact
    return odd.view(F64)


# How numpy rounds to nearest in any format; f16 and bf16 by way of float32, which has
# enough bits more to do no harm.
_NEAREST: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
}

# Of float64 that have the bits of float32, and of the mode in which the result will be
# rounded to as many. A quotient or a root is never as near to a tie as float64 errs.
_WIDE: dict[str, Function] = {
    "add": lambda mode, a, b: _sum_to_odd(a, b, mode),
    "sub": lambda mode, a, b: _sum_to_odd(a, -b, mode),
    "mul": lambda mode, a, b: a * b,
    "div": lambda mode, a, b: a / b,
    "rcp": lambda mode, a: 1 / a,
    "sqrt": lambda mode, a: np.sqrt(a),
    "fma": lambda mode, a, b, c: _sum_to_odd(a * b, c, mode),
}


# Of a float64, the bits below the one that decides how it is rounded to float32.
_BELOW_TIE = U64.type((1 << 28) - 1)


def _fused(a: Numbers, b: Numbers, c: Numbers) -> Numbers:
    """`fma` of float32, as float64 that may be rounded to nearest.

    That does harm where float64 has rounded to a tie.
    """
    product, addend = a.astype(F64) * b.astype(F64), c.astype(F64)
    total: Numbers = product + addend
    may_be_tie = total.view(U64) & _BELOW_TIE == 0
    if may_be_tie.any() and (may_be_tie & (total.astype(F32) != total)).any():
        return _sum_to_odd(product, addend, "rn")
    return total


def _fused_exactly(a: float, b: float, c: float) -> float:
    """`fma` of float64, with integers, since numpy has no wider numbers."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c
    (m, p), (n, q), (k, r) = (each.as_integer_ratio() for each in (a, b, c))
    numerator = m * n * r + k * p * q
    if numerator == 0:
        return a * b + c  # has the sign of a zero
    try:
        return numerator / (p * q * r)
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


_fused_one_by_one = np.frompyfunc(_fused_exactly, 3, 1)

_FUSED: dict[str, Function] = {
    "f32": _fused,
    "f64": lambda *numbers: np.asarray(_fused_one_by_one(*numbers), F64),
}


def _rounded(decoded: Decoded, form: Format) -> Function:
    """The function of an opcode's name, good to be rounded as it says."""
    mode, name = mode_of(decoded), "fma" if decoded.stem == "mad" else decoded.stem
    if form.name == "f64" and decoded.has("approx"):
        return _gross(decoded)
    if form.name == "f64" and mode != "rn":
        raise UnmodelledError
    if mode == "rn" and name == "fma" and form.name in _FUSED:
        return _FUSED[form.name]
    # What float32 rounds as subnormal can no longer be told to be so, or not.
    is_flushed = decoded.has("ftz") and name in ("mul", "div", "rcp")
    if mode == "rn" and name in _NEAREST and not is_flushed:
        return _NEAREST[name]
    wide = partial(_WIDE[name], mode)
    return lambda *numbers: wide(*(each.astype(F64) for each in numbers))


# ---- With an error allowed -----------------------------------------------------------


def _approximate(function: Function) -> Builder:
    """Builds instructions that are always `approx`."""

    def choose(decoded: Decoded, form: Format) -> Function:
        if form.name == "f64":
            return _gross(decoded)
        return lambda numbers: function(numbers.astype(F64))

    return _elementwise(choose, "approx", "ftz")


def _reciprocal_root(numbers: Numbers) -> Numbers:
    result: Numbers = 1 / np.sqrt(numbers)
    return result


_GROSS: dict[str, Function] = {"rcp": np.reciprocal, "rsqrt": _reciprocal_root}
_UPPER_HALF = U64.type(0xFFFF_FFFF << 32)
_GROSS_NAN = np.array([0x7FFF_FFFF << 32], U64).view(F64)


def _gross(decoded: Decoded) -> Function:
    """`approx.ftz` of float64: it reads the upper half of its bits, and writes that."""
    if decoded.stem not in _GROSS or not decoded.has("ftz"):
        raise UnmodelledError
    function = _GROSS[decoded.stem]

    def of_upper_half(numbers: Numbers) -> Numbers:
        result = function((numbers.view(U64) & _UPPER_HALF).view(F64))
        upper = (result.view(U64) & _UPPER_HALF).view(F64)
        return np.where(np.isnan(result), _GROSS_NAN, upper)

    return of_upper_half


def _quotient(decoded: Decoded, form: Format) -> Function:
    """`div`; `full` is the same as what is rounded."""
    return _by_reciprocal if decoded.has("approx") else _rounded(decoded, form)


def _by_reciprocal(a: Numbers, b: Numbers) -> Numbers:
    """`div.approx`: the reciprocal of a great number is 0."""
    result: Numbers = a.astype(F64) / b
    is_great = (np.abs(b) > 2.0**126) & np.isfinite(b)
    if is_great.any():
        result = np.where(is_great, a * np.copysign(F32.type(0), b), result)
    return result


# ---- Signs, extremes, properties -----------------------------------------------------


def _extreme(decoded: Decoded, form: Format) -> Function:
    """`min` and `max`, of two or three numbers; +0 is more than -0."""
    is_max = "max" in (decoded.stem, *decoded.modifiers)
    names = ("maximum", "fmax") if is_max else ("minimum", "fmin")
    # The first one of each is NaN where any operand is.
    pick: np.ufunc = getattr(np, names[0 if decoded.has("NaN") else 1])

    def of_two(a: Numbers, b: Numbers) -> Numbers:
        result: Numbers = pick(a, b)
        if not result.all():
            are_zero = (result == 0) & (a == b)
            result = np.where(are_zero, a + b if is_max else -(-a - b), result)
        return result

    def of_all(*numbers: Numbers) -> Numbers:
        if not decoded.has("abs"):
            return reduce(of_two, numbers)
        result = reduce(of_two, map(np.abs, numbers))
        if decoded.has("xorsign"):
            signs = (np.copysign(F32.type(1), each) for each in numbers)
            result = np.copysign(result, reduce(np.multiply, signs))
        return result

    return of_all


def _reduce(decoded: Decoded) -> Execute:
    """`redux`: the least or the greatest number of all lanes that take part."""
    form = format_of(decoded, ("sync", "min", "max", "NaN", "abs"))
    slot, extreme = decoded.destination(), _extreme(decoded, form)
    source, members = decoded.source(1, form.dtype), decoded.source(2, U32)

    def of_warps(group: Group, bits: Bits) -> Bits:
        rows = group.by_warp(bits)
        # Who does not take part stands there with the number of one who does.
        first = group.is_present.argmax(axis=1)[:, np.newaxis]
        others = np.take_along_axis(rows, first, axis=1)
        rows = np.where(group.is_present, rows, others)
        return bits_of(extreme(*numbers_of(rows.T, form)), form)[group.row]

    def execute(batch: Batch, group: Group) -> None:
        masks, masks_known = members(batch, group)
        if masks_known is not True:
            batch.forget([slot], group)
            return
        for _, part in group.split(masks):
            bits, known = source(batch, part)
            value = Value(bits, settled(part.in_all_of_warp(known)))
            result = where_known(partial(of_warps, part), form.dtype)(value)
            batch.write(slot, part, result)

    return execute


def _of_any_format(function: Function) -> Callable[[Decoded, Format], Function]:
    return lambda decoded, form: function


def _is_normal(numbers: Numbers, form: Format) -> Mask:
    """Whether numbers are normal, among which the PTX manual has 0."""
    is_normal: Mask = np.isfinite(numbers) & ~_is_subnormal(numbers, form)
    return is_normal


def _is_subnormal(numbers: Numbers, form: Format) -> Mask:
    is_subnormal: Mask = (np.abs(numbers) < 2.0**form.least) & (numbers != 0)
    return is_subnormal


_PROPERTIES: dict[str, Callable[[Numbers, Format], Mask]] = {
    "finite": lambda numbers, form: np.isfinite(numbers),
    "infinite": lambda numbers, form: np.isinf(numbers),
    "number": lambda numbers, form: ~np.isnan(numbers),
    "notanumber": lambda numbers, form: np.isnan(numbers),
    "normal": _is_normal,
    "subnormal": _is_subnormal,
}


def _test(decoded: Decoded) -> Execute:
    """`testp`: whether a number has a property."""
    form = format_of(decoded, _PROPERTIES)
    has_property = _PROPERTIES[decoded.one_of(_PROPERTIES)]
    return compute(
        decoded.destination(),
        [decoded.source(1, form.dtype)],
        where_known(lambda bits: has_property(numbers_of(bits, form), form), BOOL),
    )


FLOATING: dict[str, Builder] = {
    **dict.fromkeys(
        ("add", "sub", "mul"), _elementwise(_rounded, *_MODES, "ftz", "sat")
    ),
    "fma": _elementwise(_rounded, *_MODES, "ftz", "sat", "relu"),
    "mad": _elementwise(_rounded, *_MODES, "ftz", "sat"),
    "div": _elementwise(_quotient, *_MODES, "ftz", "approx", "full"),
    **dict.fromkeys(("rcp", "sqrt"), _elementwise(_rounded, *_MODES, "ftz", "approx")),
    "rsqrt": _approximate(_reciprocal_root),
    "ex2": _approximate(np.exp2),
    "lg2": _approximate(np.log2),
    "sin": _approximate(np.sin),
    "cos": _approximate(np.cos),
    "tanh": _approximate(np.tanh),
    "neg": _elementwise(_of_any_format(np.negative), "ftz"),
    "abs": _elementwise(_of_any_format(np.abs), "ftz"),
    "copysign": _elementwise(_of_any_format(lambda sign, x: np.copysign(x, sign))),
    **dict.fromkeys(
        ("min", "max"), _elementwise(_extreme, "ftz", "NaN", "xorsign", "abs")
    ),
    "redux": _reduce,
    "testp": _test,
}
