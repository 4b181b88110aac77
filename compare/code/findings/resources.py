"""Rules about what a kernel takes of a multiprocessor, and its overhead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from compare.assembly.classify import Language
from compare.assembly.listing import Instruction
from compare.code.findings.evidence import (
    Sides,
    Statement,
    Subject,
    are_versions,
    greater,
    having,
    in_order,
    less,
)
from compare.code.words import amount, counted, listed, opcodes

if TYPE_CHECKING:  # importing the model imports torch and Triton
    from compare.code.kernel_code import KernelCode, Side

_NOTEWORTHY_RATIO = 1.5
_NOTEWORTHY_INTEGERS = 2.0  # instructions more for each element
_OFTEN_PER_ELEMENT = 0.1
_NOTEWORTHY_OCCUPANCY = 1.3  # by which one side has more warps on an SM

_INTEGER_DIVISION = r"^(?:div|rem)\.[su](?:32|64)$"


def spills(sides: Sides) -> Statement | None:
    """Values that do not fit into registers."""
    parts = []
    for side in sides:
        code = side.code
        if code.spill_bytes:
            parts.append(
                f"{side.name} runs out of registers and spills: a thread stores"
                f" {code.spill_store_bytes} bytes to local memory and loads"
                f" {code.spill_load_bytes}"
            )
        elif code.stack_bytes:
            parts.append(
                f"{side.name} keeps {code.stack_bytes} bytes of a thread in local"
                " memory, though no register is spilled"
            )
    if not parts:
        return None
    return Statement(
        "; ".join(parts),
        [each.code.sass.in_category("local memory") for each in sides],
        greater(*(each.code.stack_bytes for each in sides)),
        language="sass",
    )


def occupancy(sides: Sides) -> Statement:
    """Registers, and how many warps an SM holds, because of them or of others."""
    cuda, triton = (each.code.registers for each in sides)
    left, right = (each.code.occupancy for each in sides)
    names = tuple(each.name for each in sides)
    text = f"A thread takes {cuda} registers"
    text += (
        " on both sides"
        if cuda == triton
        else f" in {names[0]}, {triton} in {names[1]}"
    )
    text += (
        f". An SM holds {left.warps_per_sm} of at most {left.max_warps_per_sm} warps"
    )
    first, second = (
        f", limited by {each.limits}" if each.fraction < 1 else ""
        for each in (left, right)
    )
    if first != second:
        text += f" in {names[0]}{first}; {right.warps_per_sm} in {names[1]}{second}"
    elif left.warps_per_sm == right.warps_per_sm:
        text += first
    else:
        text += f" in {names[0]}, {right.warps_per_sm} in {names[1]}"
        text += f", both{first.lstrip(',')}"
    whose = less(left.fraction, right.fraction, _NOTEWORTHY_OCCUPANCY)
    whose = whose or _edited(sides, lambda code: code.registers)
    return Statement(text, ([], []), whose)


def shared_memory(sides: Sides) -> Statement | None:
    """Shared memory of a block."""
    if not any(each.code.shared_bytes for each in sides):
        return None
    left, right = map(_described_shared_memory, sides)
    return Statement(
        f"Shared memory of a block: {sides[0].name} {left}; {sides[1].name} {right}",
        [each.ptx("shared load", "shared store") for each in sides],
        _edited(sides, lambda code: code.shared_bytes),
    )


def _described_shared_memory(side: Subject) -> str:
    parts = {
        "that the kernel declares": side.code.static_shared_bytes,
        "that the launch asks for": side.code.launch.dynamic_shared_bytes,
    }
    used = (f"{number:,} bytes {which}" for which, number in parts.items() if number)
    return listed(used) or "none"


def elements_per_thread(sides: Sides) -> Statement | None:
    """How the work is divided."""
    left, right = (
        f"{amount(each.elements_per_thread)} ({counted(each.launch.blocks, 'block')}"
        f" of {each.launch.threads_per_block} threads)"
        for each in (side.code for side in sides)
    )
    if left == right:
        return None
    text = (
        "Elements of the output for each thread of the launch:"
        f" {sides[0].name} {left}, {sides[1].name} {right}"
    )
    whose = _edited(sides, lambda code: code.launch.blocks) or _edited(
        sides, lambda code: code.launch.threads_per_block
    )
    return Statement(text, ([], []), whose)


def _edited(sides: Sides, number: Callable[[KernelCode], float]) -> Side | None:
    """Of two versions the one with more of something; None of two languages."""
    if not are_versions(sides):
        return None
    return greater(*(number(each.code) for each in sides))


def address_arithmetic(sides: Sides) -> Statement | None:
    """Instructions that compute where, not what."""
    divisions = [_frequent_divisions(each) for each in sides]
    if whose := having(*divisions):
        side, found = in_order(whose, sides)[0], divisions[0] or divisions[1]
        text = (
            f"{side.name} divides integers ({opcodes(found)}),"
            f" {amount(side.per_element(found) or 0)} times for each element. No GPU"
            " has an instruction for that: each becomes a sequence of others"
        )
        return Statement(text, divisions, whose)
    return _integers(sides, "sass") or _integers(sides, "ptx")


def _integers(sides: Sides, language: Language) -> Statement | None:
    is_sass = language == "sass"
    listings = [each.code.sass if is_sass else each.code.ptx for each in sides]
    found = [each.in_category("integer / address") for each in listings]
    left, right = (
        side.sass_per_element(each) if is_sass else side.per_element(each)
        for side, each in zip(sides, found, strict=True)
    )
    if left is None or right is None:
        return None
    more = greater(left, right, _NOTEWORTHY_RATIO, _NOTEWORTHY_INTEGERS)
    if more is None:
        return None
    about = "about " if is_sass else ""
    text = (
        f"Integers and addresses take {about}{amount(left)} {language.upper()}"
        f" instructions for each element in {sides[0].name},"
        f" {about}{amount(right)} in {sides[1].name}"
    )
    return Statement(text, found, more, language)


def _frequent_divisions(side: Subject) -> list[Instruction]:
    """Divisions of integers that are executed for more than a few elements."""
    found = side.ptx("integer / address", opcode=_INTEGER_DIVISION)
    return found if (side.per_element(found) or 0) > _OFTEN_PER_ELEMENT else []
