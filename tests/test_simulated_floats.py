"""The PTX simulator's floating point, against fractions, Python, numpy and torch."""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from together import in_one_test

from compare.assembly.listing import parse_ptx
from compare.ptx_simulator import float_arithmetic, floats
from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.group import Layout
from compare.ptx_simulator.program import Program
from compare.ptx_simulator.simulation import Launch
from compare.ptx_simulator.values import Known, Value, unknown

# ---- One instruction, in as many lanes as there are numbers --------------------------

Numbers = Sequence[int] | np.ndarray[Any, Any]  # the bits of numbers

REGISTERS = {1: "%p", 8: "%r", 16: "%h", 32: "%r", 64: "%d"}
WIDTHS = {"pred": 1, "bf16": 16, "bf16x2": 32, "tf32": 32, "e4m3x2": 16, "e5m2x2": 16}


class Registers(Batch):
    """A batch that has registers and nothing else."""

    def __init__(self, layout: Layout, program: Program) -> None:
        """Makes all of them unknown."""
        self.layout = layout
        self.dtypes = program.decoder.dtypes
        self.registers = [unknown(dtype) for dtype in self.dtypes]


def program_of(instruction: str) -> Program:
    return Program(
        parse_ptx(f"""
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k()
{{
    .reg .pred %p<8>;
    .reg .b16 %h<8>;
    .reg .b32 %r<8>;
    .reg .b64 %d<8>;
    {instruction};
    ret;
}}
""")
    )


def execute(instruction: str, inputs: dict[str, Value]) -> Callable[[str], Value]:
    """Executes it in all lanes; returns what tells the value of a register."""
    program = program_of(instruction)
    assert not program.unknown_opcodes
    lanes = max(each.bits.size for each in inputs.values())
    slots = [slot_of(name, program) for name in inputs]
    batch = Registers(layout_of(-(-lanes // 32)), program)
    for slot, (bits, known) in zip(slots, inputs.values(), strict=True):
        if bits.size > 1:
            bits = np.resize(bits, batch.layout.lanes)
        batch.registers[slot] = Value(bits.astype(batch.dtypes[slot]), known)
    with np.errstate(all="ignore"):
        program.operations[0].execute(batch, batch.layout.all_lanes)
    return lambda name: batch.registers[slot_of(name, program)]


def layout_of(blocks: int) -> Layout:
    """Blocks of a warp."""
    return Layout(Launch((blocks, 1, 1), (32, 1, 1), (), ()), range(blocks))


def slot_of(name: str, program: Program) -> int:
    """Where a register of an instruction is."""
    slot = program.decoder.register(0, name)
    assert slot is not None
    return slot


def width_of(name: str) -> int:
    """The bits of a register for a type."""
    if name in WIDTHS:
        return WIDTHS[name]
    width, _, count = name[1:].partition("x")
    return int(width) * int(count or 1)


def computed(
    opcode: str, to: str, *operands: tuple[str, Numbers], known: Known = True
) -> np.ndarray[Any, Any]:
    """The bits that an opcode makes of those of operands, each with its type."""
    names = [f"{REGISTERS[width_of(e)]}{2 + i}" for i, (e, _) in enumerate(operands)]
    result = f"{REGISTERS[width_of(to)]}1"
    inputs = {
        name: Value(np.asarray(bits, np.uint64), known)
        for name, (_, bits) in zip(names, operands, strict=True)
    }
    instruction = f"{opcode} {', '.join([result, *names])}"
    bits, is_known = execute(instruction, inputs)(result)
    assert is_known is True
    lanes = max(len(bits) for _, bits in operands)
    return np.resize(bits, lanes)


# ---- Formats and rounding, by hand ---------------------------------------------------

# By name the bits of the exponent and of the fraction.
FORMATS = {
    "f64": (11, 52),
    "f32": (8, 23),
    "tf32": (8, 10),
    "bf16": (8, 7),
    "f16": (5, 10),
}
NANS = {"f32": 0x7FFFFFFF, "tf32": 0x7FFFE000, "bf16": 0x7FFF, "f16": 0x7FFF}


def number_of(bits: int, name: str) -> float:
    """What bits of a format stand for."""
    exponent_bits, fraction_bits = FORMATS[name]
    exponent = bits >> fraction_bits & (1 << exponent_bits) - 1
    fraction = bits & (1 << fraction_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    sign = -1.0 if bits >> exponent_bits + fraction_bits else 1.0
    if exponent == (1 << exponent_bits) - 1:
        return math.copysign(math.nan, sign) if fraction else sign * math.inf
    if exponent:
        fraction += 1 << fraction_bits
    return sign * math.ldexp(fraction, max(exponent, 1) - bias - fraction_bits)


def rounds_up(mode: str, rest: Fraction, is_odd: bool, is_negative: bool) -> bool:
    """Whether a magnitude goes to the next one; the rest is a part of a step."""
    half = Fraction(1, 2)
    return {
        "rn": rest > half or (rest == half and is_odd),
        "rna": rest >= half,
        "rz": False,
        "rm": is_negative and rest > 0,
        "rp": not is_negative and rest > 0,
    }[mode]


def rounded(exact: Fraction | float, name: str, mode: str = "rn") -> int | None:
    """The bits of a number in a format; None for NaN. A zero has its sign as float."""
    exponent_bits, fraction_bits = FORMATS[name]
    bias = (1 << exponent_bits - 1) - 1
    infinity = (1 << exponent_bits) - 1 << fraction_bits
    sign_bit = 1 << exponent_bits + fraction_bits
    if isinstance(exact, float) and math.isnan(exact):
        return None
    is_negative = math.copysign(1.0, exact) < 0 if exact == 0 else exact < 0
    sign = sign_bit if is_negative else 0
    # The lowest bits of the register are zeros.
    unused = 32 - 1 - sum(FORMATS[name]) if name == "tf32" else 0
    if exact in (0, math.inf, -math.inf):
        return (sign | (infinity if exact else 0)) << unused
    magnitude = abs(Fraction(exact))
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    exponent = max(exponent, 1 - bias)
    steps = magnitude / Fraction(2) ** (exponent - fraction_bits)
    count = math.floor(steps)
    count += rounds_up(mode, steps - count, bool(count & 1), is_negative)
    bits = (exponent + bias - 1 << fraction_bits) + count
    if bits >= infinity:
        ways = {"rn": True, "rna": True, "rm": is_negative, "rp": not is_negative}
        bits = infinity if ways.get(mode, False) else infinity - 1
    return (sign | bits) << unused


def expected_bits(exact: Fraction | float, name: str, mode: str = "rn") -> int:
    found = rounded(exact, name, mode)
    return NANS[name] if found is None else found


def operands_of(name: str, count: int, generator: random.Random) -> list[list[int]]:
    """Numbers for each operand: special ones in all combinations, then random ones.

    Many of the random ones have few digits or similar exponents, so that there are
    ties, and sums of nothing.
    """
    exponent_bits, fraction_bits = FORMATS[name]
    one = (1 << exponent_bits - 1) - 1 << fraction_bits
    infinity = (1 << exponent_bits) - 1 << fraction_bits
    sign_bit = 1 << exponent_bits + fraction_bits
    special = [
        *(0, 1, (1 << fraction_bits) - 1, 1 << fraction_bits),
        *(one, one + 1, infinity - 1, infinity, infinity + 1),
    ]
    special += [each | sign_bit for each in special]
    lanes = list(itertools.product(*[special[:: max(1, count)]] * count))
    for _ in range(300):
        lane = []
        for _ in range(count):
            if generator.random() < 0.2:
                lane.append(generator.getrandbits(1 + exponent_bits + fraction_bits))
                continue
            spread = generator.choice((2, fraction_bits, 2 * fraction_bits + 2))
            exponent = generator.randrange(-spread, spread + 1)
            cut = generator.randrange(fraction_bits + 1)
            fraction = generator.getrandbits(fraction_bits) >> cut << cut
            bits = one + (exponent << fraction_bits) + fraction
            bits = min(max(bits, 0), infinity - 1)
            lane.append(bits | generator.choice((0, sign_bit)))
        lanes.append(tuple(lane))
    return [list(each) for each in zip(*lanes, strict=True)]


# ---- Arithmetic ----------------------------------------------------------------------


def product(a: float, b: float) -> Fraction | float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b
    return Fraction(a) * Fraction(b) or math.copysign(0.0, a) * math.copysign(1.0, b)


def total(a: Fraction | float, b: float, mode: str) -> Fraction | float:
    finite = [isinstance(each, Fraction) or math.isfinite(each) for each in (a, b)]
    if not all(finite):
        return (float(a) if not finite[0] else 0.0) + (b if not finite[1] else 0.0)
    exact = Fraction(a) + Fraction(b)
    if exact == 0 and (a != 0 or math.copysign(1.0, a) != math.copysign(1.0, b)):
        return -0.0 if mode == "rm" else 0.0
    return exact or b


def quotient(a: float, b: float) -> Fraction | float:
    sign = math.copysign(1.0, a) * math.copysign(1.0, b)
    if math.isnan(a) or math.isnan(b) or (a == b == 0):
        return math.nan
    if math.isinf(a):
        return math.nan if math.isinf(b) else sign * math.inf
    if b == 0 or math.isinf(b) or a == 0:
        return sign * (math.inf if b == 0 else 0.0)
    return Fraction(a) / Fraction(b)


def root(a: float) -> Fraction | float:
    if not a > 0 or math.isinf(a):
        return a if a == 0 or a > 0 else math.nan
    exact = Fraction(a) * Fraction(4) ** 1200
    found = math.isqrt(math.floor(exact))
    # A bit more in place of all that follow: no format has so many.
    return (Fraction(found) + Fraction(found**2 != exact, 2)) / Fraction(2) ** 1200


EXACT: dict[str, Callable[..., Fraction | float]] = {
    "add": lambda mode, a, b: total(a, b, mode),
    "sub": lambda mode, a, b: total(a, -b, mode),
    "mul": lambda mode, a, b: product(a, b),
    "div": lambda mode, a, b: quotient(a, b),
    "rcp": lambda mode, a: quotient(1.0, a),
    "sqrt": lambda mode, a: root(a),
    "fma": lambda mode, a, b, c: total(product(a, b), c, mode),
}
COUNTS = {"rcp": 1, "sqrt": 1, "fma": 3, "mad": 3}


@in_one_test("opcode")
@pytest.mark.parametrize(
    "opcode",
    [
        *(f"{stem}.{mode}.f32" for stem in EXACT for mode in ("rn", "rz", "rm", "rp")),
        *(f"{stem}.rn.f64" for stem in EXACT),
        *(f"{s}.rn.{t}" for s in ("add", "sub", "mul", "fma") for t in ("f16", "bf16")),
        *("add.f32", "sub.f32", "mul.f32", "mad.rn.f32"),
        *("sqrt.approx.f32", "rcp.approx.f32", "div.full.f32"),
        *(f"{s}.rn.f32.{t}" for s in ("add", "sub", "fma") for t in ("f16", "bf16")),
        "fma.rm.f32.bf16",
    ],
)
def test_arithmetic_is_rounded_once(opcode: str) -> None:
    stem, *modifiers = opcode.split(".")
    mode = next((each for each in modifiers if each in ("rz", "rm", "rp")), "rn")
    to, *narrow = [each for each in modifiers if each in FORMATS]
    count = COUNTS.get(stem, 2)
    names = [*(narrow * (count - 1)), to] if narrow else [to] * count
    generator = random.Random(opcode)
    operands = [operands_of(each, count, generator)[i] for i, each in enumerate(names)]
    found = computed(opcode, to, *zip(names, operands, strict=True))
    exactly = EXACT["fma" if stem == "mad" else stem]
    for bits, lane in zip(found.tolist(), zip(*operands, strict=True), strict=True):
        exact = exactly(mode, *map(number_of, lane, names))
        if to == "f64" and rounded(exact, to) is None:
            assert math.isnan(number_of(bits, to))
        else:
            assert bits == expected_bits(exact, to, mode), [hex(each) for each in lane]


# 1 + 2^-23, whose neighbour above is even; and the same with a subnormal sum.
@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        (0x3980_0001, 0x397F_FFFE, 0x3F80_0001),  # 2^-12 (1 + 2^-23), 2^-12 (1 - 2^-23)
        (0x3980_0001, 0xB97F_FFFE, 0xBF80_0001),
        (0x1A00_0001, 0x19FF_FFFE, 0x0040_0001),  # 2^-75 (1 + 2^-23), 2^-75 (1 - 2^-23)
    ],
)
def test_sums_that_float64_rounds_to_a_tie(a: int, b: int, c: int) -> None:
    found = computed("fma.rn.f32", "f32", ("f32", [a]), ("f32", [b]), ("f32", [c]))
    assert found.tolist() == [c]


@in_one_test("opcode", "count")
@pytest.mark.parametrize(
    ("opcode", "count"),
    [
        *((f"{s}.rn.{t}x2", 2) for s in ("add", "mul") for t in ("f16", "bf16", "f32")),
        *((f"fma.rn.{t}x2", 3) for t in ("f16", "bf16", "f32")),
        *((f"max.NaN.{t}x2", 2) for t in ("f16", "bf16")),
        *((f"neg.{t}x2", 1) for t in ("f16", "bf16")),
        *((f"tanh.approx.{t}x2", 1) for t in ("f16", "bf16")),
    ],
)
def test_several_numbers_in_a_register(opcode: str, count: int) -> None:
    to = opcode.split(".")[-1]
    single = to.removesuffix("x2")
    width = width_of(single)
    generator = random.Random(opcode)
    low, high = (operands_of(single, count, generator) for _ in range(2))
    both = [
        [b << width | a for a, b in zip(*each, strict=True)]
        for each in zip(low, high, strict=True)
    ]
    found = computed(opcode, to, *((to, each) for each in both))
    parts = [
        computed(opcode.removesuffix("x2"), single, *((single, e) for e in half))
        for half in (low, high)
    ]
    assert (found & (1 << width) - 1).tolist() == parts[0].tolist()
    assert (found >> width).tolist() == parts[1].tolist()


# ---- Modifiers -----------------------------------------------------------------------

SUBNORMAL, NORMAL, ONE, TWO = 0x007F_FFFF, 0x0080_0000, 0x3F80_0000, 0x4000_0000
MINUS, NAN, INFINITY = 0x8000_0000, 0x7FFF_FFFF, 0x7F80_0000


@in_one_test("opcode", "operands", "expected")
@pytest.mark.parametrize(
    ("opcode", "operands", "expected"),
    [
        # Subnormal operands, and results, become zeros of their sign.
        ("add.ftz.f32", [SUBNORMAL, 0], 0),
        ("add.ftz.f32", [SUBNORMAL | MINUS, MINUS], MINUS),
        ("add.ftz.f32", [NORMAL + 1, NORMAL | MINUS], 0),
        ("add.f32", [NORMAL + 1, NORMAL | MINUS], 1),
        ("mul.ftz.f32", [NORMAL | MINUS, 0x3F00_0000], MINUS),
        ("fma.rn.ftz.f32", [SUBNORMAL, INFINITY, ONE], NAN),
        ("fma.rn.f32", [SUBNORMAL, INFINITY, ONE], INFINITY),
        ("neg.ftz.f32", [1], MINUS),
        ("abs.ftz.f32", [1 | MINUS], 0),
        ("abs.f32", [1 | MINUS], 1),
        ("max.ftz.f32", [1, MINUS], 0),
        ("ex2.approx.ftz.f32", [0xC2FE_0000], 0),  # -127
        ("ex2.approx.f32", [0xC2FE_0000], 0x0040_0000),
        ("rcp.approx.ftz.f32", [1 | MINUS], INFINITY | MINUS),
        ("rcp.approx.ftz.f32", [0x7F00_0000], 0),
        ("lg2.approx.ftz.f32", [1], INFINITY | MINUS),
        # Subnormal is what would be so if exponents had no end, as on an H200.
        ("mul.f32", [NORMAL, ONE - 1], NORMAL),
        ("mul.ftz.f32", [NORMAL, ONE - 1], 0),
        ("mul.rp.ftz.f32", [NORMAL, ONE - 1], 0),
        ("mul.rm.ftz.f32", [NORMAL, (ONE - 1) | MINUS], MINUS),
        ("div.rp.ftz.f32", [NORMAL, ONE + 1], 0),
        ("fma.rn.ftz.f32", [NORMAL, ONE - 1, 0], 0),
        ("fma.rn.ftz.f32", [NORMAL, 0x3080_0000 | MINUS, NORMAL], NORMAL),
        ("fma.rz.ftz.f32", [NORMAL, NORMAL | MINUS, NORMAL], 0),
        ("fma.rp.ftz.f32", [NORMAL, NORMAL | MINUS, NORMAL], NORMAL),
        ("fma.rm.ftz.f32", [NORMAL, NORMAL, NORMAL | MINUS], NORMAL | MINUS),
        # From 0 to 1, and NaN is 0.
        ("add.sat.f32", [ONE, ONE], ONE),
        ("add.sat.f32", [ONE | MINUS, 0], 0),
        ("mul.sat.f32", [MINUS, ONE], 0),
        ("fma.rn.sat.f32", [INFINITY, 0, ONE], 0),
        ("fma.rn.sat.f32", [0x3E80_0000, ONE, 0], 0x3E80_0000),
        # What is great has the reciprocal 0 here.
        ("div.approx.f32", [ONE, 0x7E80_0001], 0),
        ("div.approx.f32", [ONE | MINUS, 0x7E80_0001], MINUS),
        ("div.approx.f32", [INFINITY, 0x7E80_0001], NAN),
        ("div.approx.f32", [ONE, 0x7E80_0000], 0x0080_0000),
        ("div.approx.f32", [INFINITY, ONE], INFINITY),
        ("div.approx.f32", [ONE, INFINITY], 0),
        ("div.full.f32", [ONE, 0x7E80_0001], 0x007F_FFFF),
    ],
)
def test_modifiers(opcode: str, operands: list[int], expected: int) -> None:
    assert computed(opcode, "f32", *(("f32", [e]) for e in operands))[0] == expected


@pytest.mark.parametrize(
    ("opcode", "operands", "expected"),
    [
        ("add.ftz.f16", [0x03FF, 0x0001], 0),
        ("add.f16", [0x03FF, 0x0001], 0x0400),
        ("add.sat.f16", [0x3C00, 0x3C00], 0x3C00),
        ("fma.rn.relu.f16", [0x3C00, 0xBC00, 0], 0),
        ("fma.rn.relu.bf16", [0x3F80, 0xBF80, 0], 0),
        ("fma.rn.relu.bf16", [0x3F80, 0x3F80, 0xFF81], 0x7FFF),
        ("fma.rn.relu.bf16", [0x3F80, 0x4000, 0x3F80], 0x4040),
    ],
)
def test_modifiers_of_sixteen_bits(
    opcode: str, operands: list[int], expected: int
) -> None:
    to = opcode.split(".")[-1]
    assert computed(opcode, to, *((to, [each]) for each in operands))[0] == expected


# ---- Approximations ------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "ex2": torch.exp2,
    "lg2": torch.log2,
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "rsqrt": lambda x: x.sqrt().reciprocal(),
}


@pytest.mark.parametrize(
    "opcode",
    [
        *(f"{stem}.approx.f32" for stem in FUNCTIONS),
        *("ex2.approx.f16", "ex2.approx.ftz.bf16"),
        *("tanh.approx.f16", "tanh.approx.bf16"),
    ],
)
def test_approximations_are_the_functions_themselves(opcode: str) -> None:
    stem, *_, to = opcode.split(".")
    operands = operands_of(to, 1, random.Random(opcode))[0]
    found = computed(opcode, to, (to, operands)).tolist()
    exact = FUNCTIONS[stem](
        torch.tensor([number_of(each, to) for each in operands], dtype=torch.float64)
    ).tolist()
    # Of float64 the last bits differ from one library to another; some tie may, too.
    expected = [expected_bits(each, to) for each in exact]
    if "ftz" in opcode:
        least = 1 << FORMATS[to][1]
        expected = [
            each if each & 0x7FFF >= least else each & 0x8000 for each in expected
        ]
    assert sum(map(operator.ne, found, expected)) <= 1
    assert all(abs(a - b) <= 1 for a, b in zip(found, expected, strict=True))


# By the tables of the PTX manual; None for NaN.
SPECIAL: dict[str, list[tuple[float, float | None]]] = {
    "ex2": [(-math.inf, 0.0), (-0.0, 1.0), (0.0, 1.0), (math.inf, math.inf)],
    "lg2": [(-math.inf, None), (-1.0, None), (-0.0, -math.inf), (0.0, -math.inf)],
    "sin": [(-math.inf, None), (-0.0, -0.0), (0.0, 0.0), (math.inf, None)],
    "cos": [(-math.inf, None), (-0.0, 1.0), (0.0, 1.0), (math.inf, None)],
    "tanh": [(-math.inf, -1.0), (-0.0, -0.0), (0.0, 0.0), (math.inf, 1.0)],
    "rsqrt": [(-math.inf, None), (-1.0, None), (-0.0, -math.inf), (math.inf, 0.0)],
    "sqrt": [(-math.inf, None), (-1.0, None), (-0.0, -0.0), (math.inf, math.inf)],
    "rcp": [(-math.inf, -0.0), (-0.0, -math.inf), (0.0, math.inf), (math.inf, 0.0)],
}


@pytest.mark.parametrize("stem", SPECIAL)
def test_special_operands_of_approximations(stem: str) -> None:
    operands, expected = zip(*SPECIAL[stem], (math.nan, None), strict=True)
    bits = [expected_bits(each, "f32") for each in operands]
    found = computed(f"{stem}.approx.f32", "f32", ("f32", bits))
    assert found.tolist() == [
        NAN if each is None else expected_bits(each, "f32") for each in expected
    ]


@pytest.mark.parametrize("stem", ["rcp", "rsqrt"])
def test_gross_approximations_of_float64(stem: str) -> None:
    operands = operands_of("f64", 1, random.Random(stem))[0]
    found = computed(f"{stem}.approx.ftz.f64", "f64", ("f64", operands)).tolist()
    least = 2.0**-1022
    for bits, operand in zip(found, operands, strict=True):
        x, result = number_of(operand, "f64"), number_of(bits, "f64")
        if math.isnan(x) or (stem == "rsqrt" and x <= -least):
            assert bits == 0x7FFFFFFF << 32
        elif abs(x) < least:
            assert result == math.copysign(math.inf, x)
        else:
            exact = 1 / x if stem == "rcp" else 1 / math.sqrt(x)
            if abs(exact) < least:
                assert bits == (1 << 63 if math.copysign(1.0, exact) < 0 else 0)
            else:
                assert abs(result - exact) <= abs(exact) * 2.0**-19
                assert bits & 0xFFFFFFFF == 0


# ---- Signs, extremes, properties -----------------------------------------------------


def extreme(opcode: str, *operands: float) -> float:
    """`min` and `max`, as the PTX manual has them: of two numbers at a time."""
    stem, *modifiers = opcode.split(".")
    numbers = [abs(each) for each in operands] if "abs" in modifiers else operands
    if "NaN" in modifiers and any(map(math.isnan, numbers)):
        return math.nan
    there = [each for each in numbers if not math.isnan(each)]
    if not there:
        return math.nan
    ordered = sorted(there, key=lambda x: (x, math.copysign(1.0, x)))
    result = ordered[-1 if stem == "max" else 0]
    if "xorsign" in modifiers:
        sign = math.prod(math.copysign(1.0, each) for each in operands)
        return math.copysign(result, sign)
    return result


@in_one_test("stem", "modifiers", "to")
@pytest.mark.parametrize("to", ["f32", "f16", "bf16", "f64"])
@pytest.mark.parametrize("stem", ["min", "max"])
@pytest.mark.parametrize("modifiers", ["", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"])
def test_extremes(stem: str, modifiers: str, to: str) -> None:
    if to == "f64" and modifiers:
        modifiers = ""  # there is nothing else
    opcode = f"{stem}{modifiers}.{to}"
    operands = operands_of(to, 2, random.Random(opcode))
    found = computed(opcode, to, *((to, each) for each in operands)).tolist()
    for bits, lane in zip(found, zip(*operands, strict=True), strict=True):
        expected = extreme(opcode, *(number_of(each, to) for each in lane))
        if to == "f64" and math.isnan(expected):
            assert math.isnan(number_of(bits, to))
        else:
            assert bits == expected_bits(expected, to)


@pytest.mark.parametrize("opcode", ["max.f32", "min.NaN.f32", "max.abs.f32"])
def test_extremes_of_three(opcode: str) -> None:
    operands = operands_of("f32", 3, random.Random(opcode))
    found = computed(opcode, "f32", *(("f32", each) for each in operands)).tolist()
    for bits, lane in zip(found, zip(*operands, strict=True), strict=True):
        expected = extreme(opcode, *(number_of(each, "f32") for each in lane))
        assert bits == expected_bits(expected, "f32")


@pytest.mark.parametrize("to", ["f32", "f64", "f16", "bf16"])
def test_signs(to: str) -> None:
    sign_bit = 1 << width_of(to) - 1
    left, right = operands_of(to, 2, random.Random(to))
    numbers = [each for each in left if not math.isnan(number_of(each, to))]
    assert computed(f"neg.{to}", to, (to, numbers)).tolist() == [
        each ^ sign_bit for each in numbers
    ]
    assert computed(f"abs.{to}", to, (to, numbers)).tolist() == [
        each & ~sign_bit for each in numbers
    ]
    if to in ("f32", "f64"):
        right = [1 if math.isnan(number_of(each, to)) else each for each in right]
        assert computed(f"copysign.{to}", to, (to, left), (to, right)).tolist() == [
            (a & sign_bit) | (b & ~sign_bit) for a, b in zip(left, right, strict=True)
        ]


PROPERTIES: dict[str, Callable[[float, float], bool]] = {
    "finite": lambda x, least: math.isfinite(x),
    "infinite": lambda x, least: math.isinf(x),
    "number": lambda x, least: not math.isnan(x),
    "notanumber": lambda x, least: math.isnan(x),
    "normal": lambda x, least: math.isfinite(x) and (x == 0 or abs(x) >= least),
    "subnormal": lambda x, least: 0 < abs(x) < least,
}


@in_one_test("name", "to", "least")
@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize(("to", "least"), [("f32", 2.0**-126), ("f64", 2.0**-1022)])
def test_properties(name: str, to: str, least: float) -> None:
    operands = operands_of(to, 1, random.Random(name))[0]
    assert computed(f"testp.{name}.{to}", "pred", (to, operands)).tolist() == [
        PROPERTIES[name](number_of(each, to), least) for each in operands
    ]


# ---- Comparisons and choices ---------------------------------------------------------

ORDERED: dict[str, Callable[[float, float], bool]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


def compares(name: str, a: float, b: float) -> bool:
    """A comparison by the PTX manual: false beside NaN, or true if it ends in `u`."""
    is_unordered = math.isnan(a) or math.isnan(b)
    if name in ("num", "nan"):
        return is_unordered == (name == "nan")
    if is_unordered:
        return name not in ORDERED
    return ORDERED[name[:2]](a, b)


COMPARISONS = [*ORDERED, *(f"{each}u" for each in ORDERED), "num", "nan"]


@in_one_test("name", "to")
@pytest.mark.parametrize("to", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(name: str, to: str) -> None:
    left, right = operands_of(to, 2, random.Random(name))
    expected = [
        compares(name, number_of(a, to), number_of(b, to))
        for a, b in zip(left, right, strict=True)
    ]
    assert computed(f"setp.{name}.{to}", "pred", (to, left), (to, right)).tolist() == (
        expected
    )
    all_ones = computed(f"set.{name}.u32.{to}", "u32", (to, left), (to, right))
    assert all_ones.tolist() == [0xFFFFFFFF * each for each in expected]
    one = {"f16": 0x3C00, "bf16": 0x3F80}.get(to, ONE)
    kind = to if to in ("f16", "bf16") else "f32"
    ones = computed(f"set.{name}.{kind}.{to}", kind, (to, left), (to, right))
    assert ones.tolist() == [one * each for each in expected]


def values_of(**registers: Iterable[int]) -> dict[str, Value]:
    return {
        f"%{name}": Value(np.array(list(bits), np.uint64), known=True)
        for name, bits in registers.items()
    }


def test_comparisons_of_two_numbers_in_a_register() -> None:
    # 1 and 2 against 2 and 2; NaN and 1 against 1 and NaN.
    inputs = values_of(
        r1=[0x4000_3C00, 0x3C00_7FFF], r2=[0x4000_4000, 0x7FFF_3C00], p3=[1, 0]
    )
    for comparison, low, high in (
        ("lt", [1, 0], [0, 0]),
        ("lt.and", [1, 0], [0, 0]),
        ("geu.or", [1, 1], [1, 1]),
        ("geu.and", [0, 0], [1, 0]),
    ):
        third = ", %p3" if "." in comparison else ""
        registers = execute(f"setp.{comparison}.f16x2 %p1|%p2, %r1, %r2{third}", inputs)
        assert registers("%p1").bits[:2].tolist() == low
        assert registers("%p2").bits[:2].tolist() == high
    for kind, one in (("f16x2", 0x3C00), ("u32", 0xFFFF)):
        registers = execute(f"set.lt.{kind}.f16x2 %r3, %r1, %r2", inputs)
        assert registers("%r3").bits[:2].tolist() == [one, 0]
        registers = execute(f"set.geu.{kind}.f16x2 %r3, %r1, %r2", inputs)
        assert registers("%r3").bits[:2].tolist() == [one << 16, one << 16 | one]


def test_comparisons_combined_with_a_predicate() -> None:
    inputs = values_of(r1=[ONE, TWO, NAN], r2=[TWO], p3=[1, 1, 0])
    registers = execute("setp.lt.xor.f32 %p1|%p2, %r1, %r2, !%p3", inputs)
    assert registers("%p1").bits[:3].tolist() == [True, False, True]
    assert registers("%p2").bits[:3].tolist() == [False, True, False]
    registers = execute("set.lt.and.f32.f32 %r3, %r1, %r2, %p3", inputs)
    assert registers("%r3").bits[:3].tolist() == [ONE, 0, 0]
    registers = execute("setp.eq.ftz.f32 %p1, %r4, 0", values_of(r4=[1, 1 | MINUS]))
    assert registers("%p1").bits[:2].tolist() == [True, True]


def test_choices_by_a_sign() -> None:
    numbers = [ONE, 0, MINUS, 1 | MINUS, ONE | MINUS, NAN, INFINITY | MINUS]
    inputs = values_of(r1=numbers)
    for opcode, chosen in (
        ("slct.f32.f32", [1, 1, 1, 0, 0, 0, 0]),
        ("slct.ftz.f32.f32", [1, 1, 1, 1, 0, 0, 0]),
        ("slct.b32.s32", [1, 1, 0, 0, 0, 1, 0]),
    ):
        registers = execute(f"{opcode} %r3, 1, 0, %r1", inputs)
        assert registers("%r3").bits[: len(numbers)].tolist() == chosen


# ---- Conversions ---------------------------------------------------------------------

ALL = np.arange(1 << 16, dtype=np.uint32)


def as_torch(bits: Any, integers: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(np.asarray(bits).astype(integers)).view(dtype)


def bits_of(numbers: torch.Tensor, integers: Any) -> np.ndarray[Any, Any]:
    signed = {1: torch.int8, 2: torch.int16, 4: torch.int32}[numbers.element_size()]
    return numbers.view(signed).numpy().view(integers)


@pytest.mark.parametrize(
    ("name", "dtype"), [("f16", torch.float16), ("bf16", torch.bfloat16)]
)
def test_all_numbers_of_sixteen_bits(name: str, dtype: torch.dtype) -> None:
    numbers = as_torch(ALL, np.int16, dtype)
    wide = numbers.float()
    is_nan = wide.isnan().numpy()
    exact = bits_of(wide, np.uint32)
    found = computed(f"cvt.f32.{name}", "f32", (name, ALL))
    assert (found == np.where(is_nan, NAN, exact)).all()
    # Back again, what lies between two of them, and what lies next to the middle.
    later = bits_of(numbers.view(torch.int16).add(1).view(dtype).float(), np.uint32)
    middle = ((wide.double() + as_torch(later, np.int32, torch.float32)) / 2).float()
    at_ties = bits_of(middle, np.uint32).astype(np.int64)
    for bits in (exact, at_ties - 1, at_ties, at_ties + 1):
        single = as_torch(bits, np.int32, torch.float32)
        expected = bits_of(single.to(dtype), np.uint16)
        found = computed(f"cvt.rn.{name}.f32", name, ("f32", bits & 0xFFFFFFFF))
        assert (found == np.where(single.isnan().numpy(), 0x7FFF, expected)).all()


@pytest.mark.parametrize(
    ("name", "dtype", "largest"),
    [("e4m3", torch.float8_e4m3fn, 448.0), ("e5m2", torch.float8_e5m2, 57344.0)],
)
def test_all_numbers_of_eight_bits(
    name: str, dtype: torch.dtype, largest: float
) -> None:
    halves = as_torch(ALL, np.int16, torch.float16)
    expected = bits_of(halves.clamp(-largest, largest).to(dtype), np.uint8)
    expected = np.where(halves.isnan().numpy(), 0x7F, expected).astype(np.uint32)
    pairs = ALL[::-1].astype(np.uint64) << 16 | ALL
    found = computed(f"cvt.rn.satfinite.{name}x2.f16x2", f"{name}x2", ("f16x2", pairs))
    assert (found == (expected[::-1] << 8 | expected)).all()
    single = bits_of(halves.float(), np.uint32)
    operands = ("f32", single[::-1]), ("f32", single)
    found = computed(f"cvt.rn.satfinite.{name}x2.f32", f"{name}x2", *operands)
    assert (found == (expected[::-1] << 8 | expected)).all()
    back = bits_of(as_torch(ALL & 0xFF, np.uint8, dtype).half(), np.uint16)
    is_nan = as_torch(ALL & 0xFF, np.uint8, dtype).half().isnan().numpy()
    low = np.where(is_nan, 0x7FFF, back).astype(np.uint32)
    found = computed(f"cvt.rn.f16x2.{name}x2", "f16x2", (f"{name}x2", ALL))
    assert (found == (low[ALL >> 8] << 16 | low)).all()


MODES = ("rn", "rz", "rm", "rp")


@in_one_test("opcode")
@pytest.mark.parametrize(
    "opcode",
    [
        *(f"cvt.{mode}.{to}.f64" for mode in MODES for to in ("f32", "f16", "bf16")),
        *(f"cvt.{mode}.f16.f32" for mode in MODES),
        *(f"cvt.{mode}.bf16.f32" for mode in MODES),
        *(f"cvt.{mode}.tf32.f32" for mode in ("rn", "rz", "rna")),
        *(f"cvt.{mode}.{a}.{b}" for mode in MODES for a, b in (("f16", "bf16"),)),
        *(f"cvt.{mode}.{a}.{b}" for mode in MODES for a, b in (("bf16", "f16"),)),
        *("cvt.f64.f32", "cvt.f64.f16", "cvt.f64.bf16"),
    ],
)
def test_conversions_between_formats(opcode: str) -> None:
    *_, mode, to, source = opcode.split(".")
    # Numbers around those of the result's format, too.
    operands = operands_of(source, 1, random.Random(opcode))[0]
    if source in ("f32", "f64") and to != "f64":
        for bits in operands_of(to, 1, random.Random(opcode))[0]:
            near = rounded(number_of(bits >> (13 if to == "tf32" else 0), to), source)
            if near is not None:
                operands += [near, max(0, near - 1), near + 1]
    found = computed(opcode, to, (source, operands)).tolist()
    for bits, operand in zip(found, operands, strict=True):
        number = number_of(operand, source)
        if to == "f64" and math.isnan(number):
            assert math.isnan(number_of(bits, to))
        else:
            way = mode if mode in (*MODES, "rna") else "rn"
            assert bits == expected_bits(number, to, way), hex(operand)


WHOLE: dict[str, Callable[[Fraction], int]] = {
    "rni": round,
    "rzi": math.trunc,
    "rmi": math.floor,
    "rpi": math.ceil,
}


@in_one_test("source", "mode")
@pytest.mark.parametrize("mode", WHOLE)
@pytest.mark.parametrize("source", ["f32", "f64", "f16", "bf16"])
def test_conversions_to_integers(source: str, mode: str) -> None:
    operands = operands_of(source, 1, random.Random(mode + source))[0]
    for power in (7, 8, 15, 16, 31, 32, 63, 64):
        near = rounded(2.0**power, source)
        assert near is not None
        sign_bit = 1 << width_of(source) - 1
        operands += [near - 1, near, near + 1, near | sign_bit, near + 1 | sign_bit]
    for to in ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"):
        width = int(to[1:])
        top = 1 << width - (to[0] == "s")
        bottom = -top if to[0] == "s" else 0
        is_wide = source == "f64" or width == 64
        found = computed(f"cvt.{mode}.{to}.{source}", to, (source, operands)).tolist()
        for bits, operand in zip(found, operands, strict=True):
            number = number_of(operand, source)
            if math.isnan(number):
                expected = 1 << width - 1 if is_wide else 0
            elif math.isinf(number):
                expected = top - 1 if number > 0 else bottom
            else:
                expected = max(bottom, min(WHOLE[mode](Fraction(number)), top - 1))
            assert bits & (1 << width) - 1 == expected & (1 << width) - 1, hex(operand)
            if to == "s8":  # in a wider register, whose bits above are the sign
                assert bits == expected & 0xFFFFFFFF or math.isnan(number)
    found = computed(f"cvt.{mode}.{source}.{source}", source, (source, operands))
    for bits, operand in zip(found.tolist(), operands, strict=True):
        number = number_of(operand, source)
        if not math.isfinite(number):
            assert bits == operand or math.isnan(number_of(bits, source))
        else:
            whole = float(WHOLE[mode](Fraction(number)))
            assert bits == expected_bits(math.copysign(whole, number), source)


@in_one_test("source", "mode")
@pytest.mark.parametrize(
    "source", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"]
)
@pytest.mark.parametrize("mode", MODES)
def test_conversions_of_integers(source: str, mode: str) -> None:
    width, is_signed = int(source[1:]), source[0] == "s"
    generator = random.Random(source + mode)
    integers = [0, 1, (1 << width) - 1, 1 << width - 1, (1 << width - 1) - 1]
    for _ in range(300):
        length = generator.randrange(1, width + 1)
        number = generator.getrandbits(length)
        # Ties, and what is next to them, of any format.
        cut = generator.randrange(length)
        number = (number >> cut << cut) + generator.choice((-1, 0, 1, 1 << cut >> 1))
        integers.append(number & (1 << width) - 1)
    for to in ("f16", "bf16", "f32", "f64"):
        if to == "f64" and mode != "rn":
            continue
        found = computed(f"cvt.{mode}.{to}.{source}", to, (source, integers)).tolist()
        for bits, integer in zip(found, integers, strict=True):
            is_negative = is_signed and integer >> width - 1
            number = integer - (1 << width) if is_negative else integer
            assert bits == rounded(Fraction(number), to, mode), number


@in_one_test("opcode", "to", "operands", "expected")
@pytest.mark.parametrize(
    ("opcode", "to", "operands", "expected"),
    [
        (
            "cvt.sat.f32.f32",
            "f32",
            [TWO, MINUS, NAN, SUBNORMAL],
            [ONE, 0, 0, SUBNORMAL],
        ),
        (
            "cvt.ftz.sat.f32.f32",
            "f32",
            [SUBNORMAL, INFINITY, ONE - 1],
            [0, ONE, ONE - 1],
        ),
        ("cvt.ftz.f32.f32", "f32", [SUBNORMAL | MINUS, NORMAL], [MINUS, NORMAL]),
        ("cvt.rpi.f32.f32", "f32", [SUBNORMAL], [ONE]),
        ("cvt.rpi.ftz.f32.f32", "f32", [SUBNORMAL], [0]),
        ("cvt.rpi.ftz.s32.f32", "s32", [SUBNORMAL], [0]),
        ("cvt.ftz.f64.f32", "f64", [1 | MINUS], [1 << 63]),
        (
            "cvt.rn.relu.f16.f32",
            "f16",
            [ONE | MINUS, MINUS, ONE, NAN],
            [0, 0, 0x3C00, 0x7FFF],
        ),
        ("cvt.rn.relu.bf16.f32", "bf16", [ONE | MINUS, INFINITY], [0, 0x7F80]),
        ("cvt.rz.relu.tf32.f32", "tf32", [ONE | MINUS, 0x3F80_3FFF], [0, 0x3F80_2000]),
        ("cvt.rn.f16.f32", "f16", [0x477F_EFFF, 0x477F_F000], [0x7BFF, 0x7C00]),
        ("cvt.rn.satfinite.f16.f32", "f16", [INFINITY, 0x477F_F000], [0x7BFF, 0x7BFF]),
        ("cvt.rz.satfinite.bf16.f32", "bf16", [INFINITY | MINUS], [0xFF7F]),
        ("cvt.rz.f16.f32", "f16", [INFINITY, 0x7F7F_FFFF], [0x7C00, 0x7BFF]),
        ("cvt.rna.satfinite.tf32.f32", "tf32", [0x7F7F_FFFF, ONE], [0x7F7F_E000, ONE]),
    ],
)
def test_modifiers_of_conversions(
    opcode: str, to: str, operands: list[int], expected: list[int]
) -> None:
    assert computed(opcode, to, ("f32", operands)).tolist() == expected


def test_conversions_flush_their_results() -> None:
    numbers = [expected_bits(each, "f64") for each in (2.0**-130, -(2.0**-130))]
    found = computed("cvt.rn.f32.f64", "f32", ("f64", numbers))
    assert found.tolist() == [1 << 19, 1 << 19 | MINUS]
    found = computed("cvt.rn.ftz.f32.f64", "f32", ("f64", numbers))
    assert found.tolist() == [0, MINUS]


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("modifiers", ["rn", "rz", "rn.relu", "rz.relu.satfinite"])
def test_conversions_of_two_numbers_into_a_register(modifiers: str, name: str) -> None:
    operands = [("f32", each) for each in operands_of("f32", 2, random.Random(name))]
    found = computed(f"cvt.{modifiers}.{name}x2.f32", f"{name}x2", *operands)
    high, low = (
        computed(f"cvt.{modifiers}.{name}.f32", name, each).astype(np.uint32)
        for each in operands
    )
    assert (found == (high << 16 | low)).all()


# ---- Lanes that do not take part, and what is not known ------------------------------


@pytest.mark.parametrize(
    "modifiers", ["min", "max", "max.NaN", "min.abs", "max.abs.NaN"]
)
def test_reductions(modifiers: str) -> None:
    generator = random.Random(modifiers)
    rows = [
        [expected_bits(generator.uniform(-9, 9), "f32") for _ in range(32)],
        [NAN, *[ONE] * 30, TWO | MINUS],
        [NAN] * 32,
        [MINUS] * 31 + [0],
    ]
    stem, _, rest = modifiers.partition(".")
    opcode = f"{stem}.{rest}.f32" if rest else f"{stem}.f32"
    numbers = np.array(rows, np.uint32).reshape(-1)
    for mask in (0xFFFFFFFF, 0x0000FFFF, 0x80000001):
        program = program_of(f"redux.sync.{modifiers}.f32 %r3, %r1, {mask:#x}")
        batch = Registers(layout_of(len(rows)), program)
        chosen = np.array([bool(mask >> lane & 1) for lane in range(32)])
        group = batch.layout.all_lanes.select(np.tile(chosen, len(rows)))
        assert group is not None
        batch.registers[slot_of("%r1", program)] = Value(numbers, known=True)
        program.operations[0].execute(batch, group)
        found = batch.registers[slot_of("%r3", program)].bits.reshape(-1, 32)
        for row, own in zip(rows, found, strict=True):
            present = [
                number_of(each, "f32") for each in itertools.compress(row, chosen)
            ]
            expected = expected_bits(extreme(opcode, *present), "f32")
            assert set(own[chosen].tolist()) == {expected}


@pytest.mark.parametrize(
    "instruction",
    [
        "fma.rn.f32 %r3, %r1, %r2, %r2",
        "ex2.approx.ftz.f32 %r3, %r2",
        "max.bf16x2 %r3, %r1, %r2",
        "cvt.rn.bf16x2.f32 %r3, %r1, %r2",
        "cvt.rzi.s32.f32 %r3, %r2",
        "cvt.rn.f32.s32 %r3, %r2",
        "set.lt.u32.f32 %r3, %r1, %r2",
        "selp.f32 %r3, %r1, %r2, %p1",
        "setp.lt.f32 %p3, %r1, %r2",
        "testp.normal.f32 %p3, %r2",
    ],
)
def test_what_is_unknown(instruction: str) -> None:
    known = np.array([True, False] * 16)
    number = Value(np.full(32, ONE), known=True)
    predicate = Value(np.ones(1), known=True)
    result = instruction.split()[1].rstrip(",")
    for one, two, expected in (
        (number, Value(np.full(32, TWO), known), known),
        (number, Value(np.zeros(1), known=False), False),
        (Value(np.zeros(1), known=False), Value(np.zeros(1), known=False), False),
    ):
        inputs = {"%r1": one, "%r2": two, "%p1": predicate}
        found = execute(instruction, inputs)(result).known
        if "selp" in instruction and one is number:  # takes the one that is known
            expected = True
        assert np.array_equal(found, expected)
        assert isinstance(found, bool) == isinstance(expected, bool)


def test_nothing_is_computed_of_what_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []

    def numbers_of(bits: Any, form: floats.Format) -> Any:
        read.append(bits.size)
        return floats.numbers_of(bits, form)

    monkeypatch.setattr(float_arithmetic, "numbers_of", numbers_of)
    for known in (False, True):
        operand = Value(np.full(32, ONE), known)
        execute("add.f32 %r3, %r1, %r2", {"%r1": operand, "%r2": operand})
        assert read == ([32, 32] if known else [])


@pytest.mark.parametrize(
    "instruction",
    [
        "add.rz.f64 %d1, %d2, %d3",
        "cvt.rz.f64.s64 %d1, %d2",
        "rsqrt.approx.f64 %d1, %d2",
        "ex2.approx.f64 %d1, %d2",
        "fma.rn.oob.bf16 %h1, %h2, %h3, %h4",
        "mul.rn.f32.bf16 %r1, %h2, %r3",
        "cvt.rs.f16x2.f32 %r1, %r2, %r3, %r4",
        "cvt.rn.e4m3x2.f32 %h1, %r2, %r3",
        "cvt.rn.satfinite.e2m3x2.f32 %h1, %r2, %r3",
        "cvt.f32.f16x2 %r1, %r2",
        "cvt.s32.f32 %r1, %r2",
        "redux.sync.add.f32 %r1, %r2, -1",
        "setp.lo.f32 %p1, %r2, %r3",
    ],
)
def test_what_cannot_be_simulated_is_named(instruction: str) -> None:
    opcode = instruction.split()[0]
    assert program_of(instruction).unknown_opcodes == {0: opcode}
