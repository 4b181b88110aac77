"""How findings put numbers and lists."""

from __future__ import annotations

from collections.abc import Iterable

from compare.assembly.listing import Instruction

LANGUAGE_NAMES = {"cuda": "CUDA", "triton": "Triton"}


def listed(parts: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`; nothing of nothing."""
    *most, last = list(parts) or [""]
    return f"{', '.join(most)} and {last}" if most else last


def counted(number: float, noun: str) -> str:
    """`no loads`, `1 load`, `2.5 loads`."""
    number_text = "no" if number == 0 else amount(number)
    return f"{number_text} {noun if number_text == '1' else _plural(noun)}"


def _plural(noun: str) -> str:
    first, *rest = noun.split(" to ")
    plural = f"{first}es" if first.endswith(("ch", "ss", "x")) else f"{first}s"
    return " to ".join([plural, *rest])


def amount(number: float) -> str:
    """Three digits are enough for numbers that are no whole ones."""
    rounded = round(number)
    if abs(number - rounded) < 0.005 * max(1.0, abs(number)) and rounded:
        return f"{rounded:,}"
    return f"{number:.2g}" if number < 1 else f"{number:.3g}"


def opcodes(instructions: Iterable[Instruction]) -> str:
    """The different opcodes, each once."""
    return listed(sorted({each.opcode for each in instructions}))
