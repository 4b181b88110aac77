"""Rules about what is computed, and by which instructions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from compare.assembly.listing import Instruction
from compare.code.findings.evidence import Statement, Subject, having
from compare.code.findings.words import amount, counted, listed, opcodes

_DIVISIONS = {
    "div.rn.f32": "rounded as IEEE 754 asks",
    "div.full.f32": "within 2 ulp",
    "div.approx.f32": "within 2 ulp, for divisors below 2^126",
    "rcp.rn.f32": "a reciprocal, rounded as IEEE 754 asks",
    "rcp.approx.f32": "a reciprocal within 1 ulp",
}
_FLUSHING = ".ftz"  # in an opcode: subnormal numbers are taken for 0
# Of a division for each of so many elements, how it is rounded matters little.
_RARE_PER_ELEMENT = 0.25

_SHAPE = re.compile(r"\.(m\d+n\d+k\d+)\b")


# ---- Precision -----------------------------------------------------------------------


def float64(cuda: Subject, triton: Subject) -> Statement | None:
    """Arithmetic in float64, of which GPUs have little."""
    leaks = [each.ptx("float64") for each in (cuda, triton)]
    parts = [
        f"{side.name} computes in float64, by {opcodes(leak)}{_for_each(leak, side)}"
        for side, leak in zip((cuda, triton), leaks, strict=True)
        if leak
    ]
    if not parts:
        return None
    return Statement("; ".join(parts), leaks, having(*leaks))


def _for_each(found: Sequence[Instruction], side: Subject) -> str:
    times = side.per_element(found)
    return f" ({counted(times, 'instruction')} for each element)" if times else ""


def subnormals(cuda: Subject, triton: Subject) -> Statement | None:
    """Numbers below 2^-126 that are taken for 0."""
    sides = (cuda, triton)
    math = [each.ptx("fp math") for each in sides]
    flushing = [[each for each in side if _FLUSHING in each.opcode] for side in math]
    if not all(math) or having(*flushing) is None:
        return None
    place = 0 if flushing[0] else 1
    text = (
        f"{sides[place].name} takes subnormal numbers for 0 in {len(flushing[place])}"
        f" of its {len(math[place])} floating-point instructions ({_FLUSHING});"
        f" {sides[1 - place].name} in none"
    )
    return Statement(text, flushing)


def division(cuda: Subject, triton: Subject) -> Statement | None:
    """How divisions and reciprocals are rounded."""
    sides = (cuda, triton)
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
    return Statement(f"Division: CUDA takes {left}; Triton {right}", found, whose)


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


def packed_math(cuda: Subject, triton: Subject) -> Statement | None:
    """Two numbers computed by one instruction."""
    math = [each.ptx("fp math") for each in (cuda, triton)]
    packed = [[each for each in side if each.opcode.endswith("x2")] for side in math]
    if not all(math) or having(*packed) is None:
        return None
    user, other = (cuda, triton) if packed[0] else (triton, cuda)
    text = (
        f"{user.name} computes on two numbers by one instruction"
        f" ({opcodes(packed[0] or packed[1])}); {other.name} on one"
    )
    return Statement(text, packed, other.side)


def tensor_cores(cuda: Subject, triton: Subject) -> Statement | None:
    """Matrix products: on tensor cores or not, and by which instructions."""
    sides = (cuda, triton)
    found = [
        [each for each in side.ptx("tensor core") if "mma" in each.opcode]
        for side in sides
    ]
    if not any(found):
        return None
    names = [_matrix_instructions(each) for each in found]
    if all(found):
        by = (
            f", by {names[0]}"
            if names[0] == names[1]
            else f": CUDA by {names[0]}, Triton by {names[1]}"
        )
        text = f"Both multiply matrices on tensor cores{by}"
        warpgroups = [[each for each in side if _is_hopper(each)] for side in found]
        if having(*warpgroups):
            text += (
                "; wgmma is Hopper's own: four warps at once, by operands in shared"
                " memory"
            )
        return Statement(text, found)
    place = 0 if found[0] else 1
    user, other = sides[place], sides[1 - place]
    plain = [each for each in other.ptx("fp math") if each.opcode.startswith("fma.")]
    if not plain:
        return None
    text = (
        f"{user.name} multiplies matrices on tensor cores, by {names[place]};"
        f" {other.name} does not, it multiplies and adds by {opcodes(plain)}"
    )
    return Statement(text, [found[0] or plain, found[1] or plain], other.side)


def _is_hopper(instruction: Instruction) -> bool:
    return instruction.opcode.startswith("wgmma")


def _matrix_instructions(found: Iterable[Instruction]) -> str:
    """`mma m16n8k16`, the most frequent first."""
    names: Counter[str] = Counter()
    for each in found:
        stem, *modifiers = each.opcode.split(".")
        shape = _SHAPE.search(each.opcode)
        names[f"{stem} {shape[1]}" if shape else f"{stem}.{modifiers[0]}"] += 1
    return listed(name for name, _ in names.most_common()) if names else ""
