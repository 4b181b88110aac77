"""Rules about exp, tanh and erf, as each compiler wrote them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compare.assembly.listing import Instruction
from compare.code.findings.evidence import Sides, Statement, Subject, having, in_order
from compare.code.words import opcodes

# Numbers, as the bits of a float32, that give away what an expression computes.
_LOG2_E = frozenset({0x3FB8AA3B, 0xBFB8AA3B})  # for x and for -x
# The part of log2(e) that float32 drops, which only expf adds.
_LOG2_E_LOW_PART = frozenset({0x32A57060, 0xB2A57060})
_TWO_LOG2_E = 0x4038AA3B  # in tanhf
_ERF_BENDS = 0x3F8060FE  # erff: 1.003, where one polynomial ends and another begins
_TANH_BENDS = 0x3F19999A  # tanhf: 0.6, up to which it is a polynomial

_FAST = "2^(x * log2 e)"
_ACCURATE = (
    "exp(x) as expf does: it brings x into a small range first, and scales the result"
)
_ERF = "libdevice's erff: one of two polynomials, and an ex2 where |x| is above 1.003"
_TANH = "libdevice's tanhf: a polynomial up to 0.6, then an ex2 and a reciprocal"


# ---- exp -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Exponential:
    """A base-2 exponential: what it is a part of, and what scales its argument."""

    part_of: str  # "exp", "expf", "erf", "tanh" or "" if that is unknown
    instruction: Instruction
    scaling: Instruction | None = None


def exponential(sides: Sides) -> Statement | None:
    """How exp is computed."""
    found = [
        [each for each in _exponentials(side) if each.part_of not in ("erf", "tanh")]
        for side in sides
    ]
    forms = [{each.part_of for each in side} for side in found]
    if any(len(side) != 1 or "" in side for side in forms):
        return None
    evidence = [
        [each for one in side for each in (one.scaling, one.instruction) if each]
        for side in found
    ]
    left, right = ways = [_way(each) for each in found]
    whose = having(*(each == {"expf"} for each in forms))
    if whose is None:
        does = f"exp(x) as {_FAST}" if forms[0] == {"exp"} else _ACCURATE
        by = _compared(left, right, sides)
        return Statement(f"Both compute {does}, by {by}", evidence)
    user, other = in_order(whose, sides)
    accurate, _ = in_order(whose, found)
    text = (
        f"{user.name} computes {_ACCURATE}, around"
        f" {opcodes(each.instruction for each in accurate)};"
        f" {other.name} takes {_FAST} at once, by {in_order(whose, ways)[1]}"
    )
    return Statement(text, evidence, whose)


def _compared(left: str, right: str, sides: Sides) -> str:
    """`a in CUDA, b in Triton`; what is the same on both sides only once."""
    first, second = (each.name for each in sides)
    return left if left == right else f"{left} in {first}, {right} in {second}"


def _way(found: Sequence[_Exponential]) -> str:
    """`mul.f32 and ex2.approx.f32`."""
    way = opcodes(each.instruction for each in found)
    scalings = [each.scaling for each in found if each.scaling]
    return f"{opcodes(scalings)} and {way}" if scalings else way


def _exponentials(side: Subject) -> Iterator[_Exponential]:
    for each in side.ptx("special function", opcode=r"^ex2\."):
        yield _exponential(each, side)


def _exponential(instruction: Instruction, side: Subject) -> _Exponential:
    origins = side.flow.origins(instruction, 1)
    if len({each.opcode for each in origins}) != 1:
        return _Exponential("", instruction)
    scaling = origins[0]
    constants = side.flow.constants(scaling)
    stem = scaling.stem
    if stem == "fma" and constants & _LOG2_E_LOW_PART:
        return _Exponential("expf", instruction)
    if stem in ("mul", "fma") and constants & _LOG2_E:
        return _Exponential("exp", instruction, scaling)
    if stem == "mul" and _TWO_LOG2_E in constants:
        return _Exponential("tanh", instruction, scaling)
    if stem == "fma" and _compares_with(side, _ERF_BENDS):
        return _Exponential("erf", instruction, scaling)
    return _Exponential("", instruction)


def _compares_with(side: Subject, bits: int) -> list[Instruction]:
    """Comparisons with a number."""
    comparisons = side.ptx("compare / select", opcode=r"^setp\.")
    return [each for each in comparisons if bits in side.flow.constants(each)]


# ---- erf and tanh --------------------------------------------------------------------


def error_function(sides: Sides) -> Statement | None:
    """How erf is computed."""
    found = [_compares_with(each, _ERF_BENDS) for each in sides]
    if whose := having(*found):
        user, other = in_order(whose, sides)
        text = f"{user.name} computes erf by {_ERF}; {other.name} does without erff"
        return Statement(text, found, whose)
    if not all(found):
        return None
    text = f"Both compute erf by {_ERF}"
    left, right = map(_choice, sides, found)
    if left and right and left != right:
        first, second = (each.name for each in sides)
        text += f". In PTX, {first} chooses the polynomial {left}, {second} {right}"
    return Statement(text, found)


def _choice(side: Subject, comparisons: Sequence[Instruction]) -> str:
    """How the PTX chooses between the polynomials of erff; empty if that is unclear."""
    predicates = {each.operands[0] for each in comparisons}
    after = side.code.ptx.instructions[comparisons[0].index :]
    chosen = [
        each
        for each in after
        if each.opcode.startswith("selp.") and each.operands[-1] in predicates
    ]
    if len(chosen) > 2 * len(comparisons):  # most of the seven coefficients
        return "by selp"
    branches = any(
        each.branch_target and each.predicate.lstrip("!") in predicates
        for each in after
    )
    return "by branches" if branches else ""


def hyperbolic_tangent(sides: Sides) -> Statement | None:
    """How tanh is computed."""
    hardware = [each.ptx("special function", opcode=r"^tanh\.") for each in sides]
    software = [_compares_with(each, _TANH_BENDS) for each in sides]
    if not all(map(having, hardware, software)):
        return None
    left, right = ways = [
        f"one {opcodes(each)}" if each else _TANH for each in hardware
    ]
    evidence = [fast or slow for fast, slow in zip(hardware, software, strict=True)]
    whose = having(*software)
    if whose is None:
        by = _compared(left, right, sides)
        return Statement(f"Both compute tanh by {by}", evidence)
    user, other = in_order(whose, sides)
    slow, fast = in_order(whose, ways)
    text = f"{user.name} computes tanh by {slow}; {other.name} by {fast}"
    return Statement(text, evidence, whose)


# ---- The rest ------------------------------------------------------------------------


def special_functions(sides: Sides) -> Statement | None:
    """Other instructions of the special function units."""
    found = [
        [each for each in side.ptx("special function") if not _is_told(each, side)]
        for side in sides
    ]
    left, right = (opcodes(side) or "none" for side in found)
    if left == right:
        return None
    first, second = (each.name for each in sides)
    return Statement(f"Special functions: {first} {left}; {second} {right}", found)


def _is_told(instruction: Instruction, side: Subject) -> bool:
    """Whether another rule is about it: exp, erf, tanh or division."""
    if instruction.opcode.startswith("ex2."):
        return bool(_exponential(instruction, side).part_of)
    return instruction.opcode.startswith(("rcp.", "tanh."))
