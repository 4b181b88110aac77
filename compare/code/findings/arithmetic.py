"""Rules about what is computed, and by which instructions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from compare.assembly.listing import Instruction
from compare.code.findings.evidence import Sides, Statement, Subject, having, in_order
from compare.code.words import amount, counted, listed, opcodes

_DIVISIONS = {
    "div.rn.f32": "rounded as IEEE 754 asks",
    "div.full.f32": "within 2 ulp",
    "div.approx.f32": "within 2 ulp, for divisors below 2^126",
    "rcp.rn.f32": "a reciprocal, rounded as IEEE 754 asks",
    "rcp.approx.f32": "a reciprocal within 1 ulp",
}
_FLUSHING = ".ftz"  # in an opcode: subnormal numbers are taken for 0
# How a division is rounded matters little where it is one for many elements.
_RARE_PER_ELEMENT = 0.25

_SHAPE = re.compile(r"\.(m\d+n\d+k\d+)\b")


# ---- Precision -----------------------------------------------------------------------


def float64(sides: Sides) -> Statement | None:
    """Arithmetic in float64, of which GPUs have little."""
    leaks = [each.ptx("float64") for each in sides]
    parts = []
    for side, leak in zip(sides, leaks, strict=True):
        if leak:
            times = side.per_element(leak)
            of = f" ({counted(times, 'instruction')} for each element)" if times else ""
            parts.append(f"{side.name} computes in float64, by {opcodes(leak)}{of}")
    return Statement("; ".join(parts), leaks, having(*leaks)) if parts else None


def subnormals(sides: Sides) -> Statement | None:
    """Numbers below 2^-126 that are taken for 0."""
    math = [each.ptx("fp math") for each in sides]
    flushing = [each.ptx("fp math", opcode=re.escape(_FLUSHING)) for each in sides]
    whose = having(*flushing)
    if not all(math) or whose is None:
        return None
    user, other = in_order(whose, sides)
    text = (
        f"{user.name} takes subnormal numbers for 0 in"
        f" {len(flushing[0] or flushing[1])} of its {len(in_order(whose, math)[0])}"
        f" floating-point instructions ({_FLUSHING}); {other.name} in none"
    )
    return Statement(text, flushing)


def division(sides: Sides) -> Statement | None:
    """How divisions and reciprocals are rounded."""
    found = [_divisions(each) for each in sides]
    forms = [{each.opcode for each in side} for side in found]
    if not all(forms) or forms[0] == forms[1]:
        return None
    left, right = (
        listed(_described_division(opcode, side, each) for opcode in sorted(form))
        for side, each, form in zip(sides, found, forms, strict=True)
    )
    exact = [[each for each in side if ".rn" in each.opcode] for side in found]
    whose = having(*exact)
    for side, each in zip(sides, exact, strict=True):
        if each and (side.per_element(each) or 1) < _RARE_PER_ELEMENT:
            whose = None
    first, second = (each.name for each in sides)
    return Statement(f"Division: {first} takes {left}; {second} {right}", found, whose)


def _divisions(side: Subject) -> list[Instruction]:
    return [
        each
        for each in side.ptx("division", "special function")
        if each.opcode.replace(_FLUSHING, "") in _DIVISIONS
    ]


def _described_division(
    opcode: str, side: Subject, found: Iterable[Instruction]
) -> str:
    notes = [_DIVISIONS[opcode.replace(_FLUSHING, "")]]
    if _FLUSHING in opcode:
        notes.append("subnormals taken for 0")
    times = side.per_element(each for each in found if each.opcode == opcode)
    if times and times < _RARE_PER_ELEMENT:
        notes.append(f"one for {amount(1 / times)} elements")
    return f"{opcode} ({', '.join(notes)})"


# ---- Units ---------------------------------------------------------------------------


def packed_math(sides: Sides) -> Statement | None:
    """Two numbers computed by one instruction."""
    math = [each.ptx("fp math") for each in sides]
    packed = [each.ptx("fp math", opcode="x2$") for each in sides]
    whose = having(*packed)
    if not all(math) or whose is None:
        return None
    user, other = in_order(whose, sides)
    text = (
        f"{user.name} computes on two numbers by one instruction"
        f" ({opcodes(packed[0] or packed[1])}); {other.name} on one"
    )
    return Statement(text, packed, other.side)


def tensor_cores(sides: Sides) -> Statement | None:
    """Matrix products: on tensor cores or not, and by which instructions."""
    found = [each.ptx("tensor core", opcode="mma") for each in sides]
    left, right = names = [_matrix_instructions(each) for each in found]
    if all(found):
        first, second = (each.name for each in sides)
        by = f": {first} by {left}, {second} by {right}"
        if left == right:
            by = f", by {left}"
        text = f"Both multiply matrices on tensor cores{by}"
        if having(*("wgmma" in each for each in names)):
            text += (
                "; wgmma is Hopper's own: four warps at once, by operands in shared"
                " memory"
            )
        return Statement(text, found)
    whose = having(*found)
    if whose is None:
        return None
    user, other = in_order(whose, sides)
    plain = other.ptx("fp math", opcode=r"^fma\.")
    if not plain:
        return None
    text = (
        f"{user.name} multiplies matrices on tensor cores, by {left or right};"
        f" {other.name} does not, it multiplies and adds by {opcodes(plain)}"
    )
    return Statement(text, [each or plain for each in found], other.side)


def _matrix_instructions(found: Iterable[Instruction]) -> str:
    """`mma m16n8k16`, the most frequent first."""
    names: Counter[str] = Counter()
    for each in found:
        stem, first, *_ = each.opcode.split(".")
        shape = _SHAPE.search(each.opcode)
        names[f"{stem} {shape[1]}" if shape else f"{stem}.{first}"] += 1
    return listed(name for name, _ in names.most_common())
