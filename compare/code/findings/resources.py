"""Rules about what a kernel takes of a multiprocessor, and its overhead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compare.assembly.classify import Language
from compare.assembly.listing import Instruction
from compare.code.findings.evidence import Statement, Subject, greater, less
from compare.code.findings.words import amount, counted, listed, opcodes

if TYPE_CHECKING:
    from compare.code.occupancy import Occupancy

_NOTEWORTHY_RATIO = 1.5
_NOTEWORTHY_INTEGERS = 2.0  # instructions more for each element
_OFTEN_PER_ELEMENT = 0.1
_NOTEWORTHY_OCCUPANCY = 1.3  # by which one side has more warps on an SM

_LIMITS = {
    "registers": "registers",
    "shared memory": "shared memory",
    "threads": "the number of threads",
    "blocks": "the number of blocks",
}
_INTEGER_DIVISION = re.compile(r"(?:div|rem)\.[su](?:32|64)")


def spills(cuda: Subject, triton: Subject) -> Statement | None:
    """Values that do not fit into registers."""
    parts = []
    for side in (cuda, triton):
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
        [each.code.sass.in_category("local memory") for each in (cuda, triton)],
        greater(cuda.code.stack_bytes, triton.code.stack_bytes),
        language="sass",
    )


def occupancy(cuda: Subject, triton: Subject) -> Statement | None:
    """Registers, and how many warps an SM holds, because of them or of others."""
    left, right = cuda.occupancy, triton.occupancy
    same = cuda.code.registers == triton.code.registers
    registers = (
        f"A thread takes {cuda.code.registers} registers on both sides"
        if same
        else f"A thread takes {cuda.code.registers} registers in CUDA,"
        f" {triton.code.registers} in Triton"
    )
    if left is None or right is None:
        return None if same else Statement(registers, ([], []))
    held = f"An SM holds {left.warps_per_sm} of at most {left.max_warps_per_sm} warps"
    limits = [_limits(each) for each in (left, right)]
    if left.warps_per_sm == right.warps_per_sm and limits[0] == limits[1]:
        text = f"{registers}. {held}{limits[0]}"
    elif limits[0] == limits[1]:
        text = (
            f"{registers}. {held} in CUDA, {right.warps_per_sm} in Triton, both"
            f"{limits[0].removeprefix(',')}"
        )
    else:
        text = (
            f"{registers}. {held} in CUDA{limits[0]}; {right.warps_per_sm} in"
            f" Triton{limits[1]}"
        )
    whose = less(left.fraction, right.fraction, _NOTEWORTHY_OCCUPANCY)
    return Statement(text, ([], []), whose)


def _limits(held: Occupancy) -> str:
    limits = listed(_LIMITS[each] for each in held.limited_by)
    return f", limited by {limits}" if held.fraction < 1 else ""


def shared_memory(cuda: Subject, triton: Subject) -> Statement | None:
    """Shared memory of a block."""

    def described(side: Subject) -> str:
        parts = [
            f"{amount_of:,} bytes {how}"
            for amount_of, how in (
                (side.code.static_shared_bytes, "that the kernel declares"),
                (side.code.dynamic_shared_bytes, "that the launch asks for"),
            )
            if amount_of
        ]
        return listed(parts) if parts else "none"

    if cuda.code.shared_bytes == triton.code.shared_bytes == 0:
        return None
    return Statement(
        f"Shared memory of a block: CUDA {described(cuda)}; Triton {described(triton)}",
        [each.ptx("shared load", "shared store") for each in (cuda, triton)],
    )


def elements_per_thread(cuda: Subject, triton: Subject) -> Statement | None:
    """How the work is divided."""

    def described(side: Subject) -> str:
        code = side.code
        blocks = counted(code.blocks, "block")
        return (
            f"{amount(code.elements_per_thread)} ({blocks} of"
            f" {code.threads_per_block} threads)"
        )

    left, right = described(cuda), described(triton)
    if left == right:
        return None
    text = (
        "Elements of the output for each thread of the launch:"
        f" CUDA {left}, Triton {right}"
    )
    return Statement(text, ([], []))


def address_arithmetic(cuda: Subject, triton: Subject) -> Statement | None:
    """Instructions that compute where, not what."""
    divisions = [_frequent_divisions(each) for each in (cuda, triton)]
    if bool(divisions[0]) != bool(divisions[1]):
        side, found = (cuda, divisions[0]) if divisions[0] else (triton, divisions[1])
        text = (
            f"{side.name} divides integers ({opcodes(found)}),"
            f" {amount(side.per_element(found) or 0)} times for each element. No GPU"
            " has an instruction for that: each becomes a sequence of others"
        )
        return Statement(text, divisions, side.side)
    return _integers(cuda, triton, "sass") or _integers(cuda, triton, "ptx")


def _integers(cuda: Subject, triton: Subject, language: Language) -> Statement | None:
    sides = (cuda, triton)
    found = [
        (each.code.sass if language == "sass" else each.code.ptx).in_category(
            "integer / address"
        )
        for each in sides
    ]
    times = [
        side.sass_per_element(each) if language == "sass" else side.per_element(each)
        for side, each in zip(sides, found, strict=True)
    ]
    if times[0] is None or times[1] is None:
        return None
    more = greater(times[0], times[1], _NOTEWORTHY_RATIO, _NOTEWORTHY_INTEGERS)
    if more is None:
        return None
    about = "about " if language == "sass" else ""
    text = (
        f"Integers and addresses take {about}{amount(times[0])} {language.upper()}"
        f" instructions for each element in CUDA, {about}{amount(times[1])} in Triton"
    )
    return Statement(text, found, more, language)


def _frequent_divisions(side: Subject) -> list[Instruction]:
    """Divisions of integers that are executed for more than a few elements."""
    found = [
        each
        for each in side.ptx("integer / address")
        if _INTEGER_DIVISION.fullmatch(each.opcode)
    ]
    return found if (side.per_element(found) or 0) > _OFTEN_PER_ELEMENT else []
