"""Rules about the ways that data takes: caches, and copies into shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterable

from compare.assembly.classify import is_copy_to_global
from compare.assembly.listing import Instruction
from compare.code.findings.evidence import (
    Sides,
    Statement,
    Subject,
    having,
    in_order,
    less,
)
from compare.code.words import listed, opcodes

_HINT = re.compile(r"L[12]::\w+|c[agsv]|w[bt]|lu")


# ---- Caches --------------------------------------------------------------------------


def read_only_path(sides: Sides) -> Statement | None:
    """Loads by ld.global.nc."""
    loads = [each.ptx("global load") for each in sides]
    cached = [each.ptx("global load", opcode=r"\.nc") for each in sides]
    whose = having(*cached)
    if not all(loads) or whose is None:
        return None
    user, other = in_order(whose, sides)
    text = (
        f"{user.name} loads through the read-only data cache (ld.global.nc), which it"
        f" may because nothing writes there during the launch; {other.name} by plain"
        " ld.global"
    )
    evidence = [hits or side for hits, side in zip(cached, loads, strict=True)]
    return Statement(text, evidence, whose)


def cache_hints(sides: Sides) -> Statement | None:
    """Hints in opcodes to the caches."""
    accesses = [each.ptx("global load", "global store") for each in sides]
    hinted = [[each for each in side if _hints(each)] for side in accesses]
    if not all(accesses) or {*map(_hints, hinted[0])} == {*map(_hints, hinted[1])}:
        return None
    left, right = (
        f"by {opcodes(found)}" if found else "gives none" for found in hinted
    )
    first, second = (each.name for each in sides)
    text = f"Hints to the caches: {first} {left}, {second} {right}"
    return Statement(text, hinted, having(*hinted))


def _hints(access: Instruction) -> tuple[str, ...]:
    """The parts of an opcode that steer the caches."""
    return tuple(each for each in access.opcode.split(".") if _HINT.fullmatch(each))


# ---- Copies --------------------------------------------------------------------------


def asynchronous_copies(sides: Sides) -> Statement | None:
    """Copies from global to shared memory that nobody waits for at once."""
    copies = [_copies(each) for each in sides]
    if all(copies):
        return _both_asynchronous(sides)
    whose = having(*copies)
    if whose is None:
        return None
    user, other = in_order(whose, sides)
    staged = _through_registers(other)
    if not staged:
        return None
    depth = _bytes_under_way(user)
    text = (
        f"{other.name} copies from global to shared memory through registers"
        f" ({opcodes(staged)}); {user.name} asynchronously"
        f" ({_names(copies[0] or copies[1])})"
        f"{'' if depth is None else _while_computing(depth)}"
    )
    evidence = in_order(whose, (_copies_and_waits(user), staged))
    return Statement(text, evidence, other.side)


def _both_asynchronous(sides: Sides) -> Statement:
    cuda, triton = (_names(_copies(each)) for each in sides)
    first, second = (each.name for each in sides)
    names = cuda if cuda == triton else f"{first}: {cuda}; {second}: {triton}"
    text = f"Both copy from global to shared memory asynchronously ({names})"
    evidence = [_copies_and_waits(each) for each in sides]
    left, right = (_bytes_under_way(each) for each in sides)
    if left is None or right is None:
        return Statement(text, evidence)
    if left == right:
        return Statement(f"{text}{_while_computing(left)} on both sides", evidence)
    text += f"{_while_computing(left)} in {first}, {right} in {second}"
    return Statement(text, evidence, less(left, right))


def _while_computing(count: int) -> str:
    return (
        f". While it computes, a thread has at most {count} bytes of copies under way"
    )


def _copies(side: Subject) -> list[Instruction]:
    """Asynchronous copies from global to shared memory."""
    return [
        each
        for each in side.ptx("async copy", "tensor copy")
        if not is_copy_to_global(each.opcode)
    ]


def _names(copies: Iterable[Instruction]) -> str:
    """`cp.async.cg`: without where from and where to, which is long and the same."""
    return listed(sorted({re.split(r"\.shared", each.opcode)[0] for each in copies}))


def _copies_and_waits(side: Subject) -> list[Instruction]:
    waits = side.ptx("fence / wait", opcode=r"cp\.")
    return [*_copies(side), *side.ptx("mbarrier"), *waits]


def _bytes_under_way(side: Subject) -> int | None:
    """Bytes that a thread has not waited for yet; None if the code does not tell.

    A wait names the number of groups of copies that it does not wait for.
    """
    waits = side.ptx("fence / wait", opcode=r"^cp\.async\.wait_group$")
    commits = side.ptx("fence / wait", opcode=r"^cp\.async\.commit_group$")
    copied = [each.access_bytes for each in _copies(side)]
    groups = max((int(each.operands[0], 0) for each in waits), default=0)
    # Where all is waited for, more may be on its way before the values are used.
    if groups == 0 or not commits or 0 in copied:
        return None
    return groups * sum(copied) // len(commits)


def _through_registers(side: Subject) -> list[Instruction]:
    """Loads from global memory whose result is stored to shared memory as it is."""
    found = []
    for store in side.ptx("shared store"):
        for origin in side.flow.origins(store, len(store.operands) - 1):
            if origin.category == "global load":
                found += [origin, store]
    return list(dict.fromkeys(found))
