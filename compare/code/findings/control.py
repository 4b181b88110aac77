"""Rules about the order of things: loops, conditions, and lanes left without work."""

from __future__ import annotations

from collections.abc import Sequence

from compare.assembly.control_flow import find_loops
from compare.assembly.listing import Instruction
from compare.code.findings.evidence import (
    Sides,
    Statement,
    Subject,
    greater,
    having,
    in_order,
)
from compare.code.words import amount, counted, listed

_NOTEWORTHY_RATIO = 1.5  # of rounds
_NOTEWORTHY_MASKED = 0.1  # of all lanes


def loops(sides: Sides) -> Statement | None:
    """Loops that the compilers left, and how many rounds they take."""
    heads = [_loop_heads(each) for each in sides]
    rounds = [_rounds(side, each) for side, each in zip(sides, heads, strict=True)]
    numbers = [counted(len(each), "loop") for each in heads]
    if whose := having(*heads):
        user, other = in_order(whose, sides)
        number, times = in_order(whose, numbers)[0], in_order(whose, rounds)[0]
        of = f" ({counted(times, 'round')} in each thread)" if times else ""
        text = (
            f"{user.name} has {number}{of}; {other.name} none: its code runs straight"
            " to the end"
        )
        return Statement(text, heads, whose)
    left, right = rounds
    # Where warps do different things, an average tells of none of them.
    if not left or not right or any(map(_register_shares, sides)):
        return None
    cuda, triton = (each.code.elements_per_thread for each in sides)
    more = greater(left / cuda, right / triton, _NOTEWORTHY_RATIO)
    if more is None:
        return None
    text = (
        f"Each thread goes round {amount(left)} times in {sides[0].name}"
        f" ({numbers[0]}), {amount(right)} times in {sides[1].name} ({numbers[1]})"
    )
    return Statement(text, heads, more)


def specialisation(sides: Sides) -> Statement | None:
    """Warps of a block that do different things, for which they share out registers."""
    shares = [_register_shares(each) for each in sides]
    if not any(shares):
        return None
    left, right = (
        f"{listed(sorted({each.operands[0] for each in share}, key=int))} registers"
        for share in shares
    )
    whose = having(*shares)
    if whose is None:
        text = (
            "Warps of a block do different things, and share out its registers for"
            f" that (setmaxnreg): a thread has {left} in {sides[0].name}, {right} in"
            f" {sides[1].name}"
        )
        return Statement(text, shares)
    user, other = in_order(whose, sides)
    text = (
        f"{user.name} gives warps of a block different things to do, and to their"
        f" threads {left if shares[0] else right} (setmaxnreg); {other.name} all the"
        " same"
    )
    return Statement(text, shares, whose)


def _register_shares(side: Subject) -> list[Instruction]:
    return side.ptx("fence / wait", opcode="^setmaxnreg")


def _loop_heads(side: Subject) -> list[Instruction]:
    """The heads of outermost loops, without those that are not gone round."""
    found = find_loops(side.code.ptx)
    heads = [
        side.code.ptx.instructions[each.head]
        for each in found
        if not any(each.body < other.body for other in found)
    ]
    rounds = {each: _rounds(side, [each]) for each in side.used(heads)}
    return [each for each, number in rounds.items() if number is None or number > 1]


def _rounds(side: Subject, heads: Sequence[Instruction]) -> float | None:
    """How often a thread passes the heads of loops, on average; None if unknown."""
    times = side.per_element(heads)
    return None if times is None else times * side.code.elements_per_thread


def guards(sides: Sides) -> Statement | None:
    """How accesses are kept from going past the end."""
    accesses = [each.ptx("global load", "global store") for each in sides]
    guarded = [[each for each in side if each.predicate] for side in accesses]
    whose = having(*guarded)
    if not all(accesses) or whose is None:
        return None
    user, other = in_order(whose, sides)
    masked, plain = in_order(whose, accesses)
    around = {other.ways.guard(each) for each in plain}
    branches = [each for each in other.ptx("branch / control") if each in around]
    if not branches:
        return None
    text = (
        f"{user.name} masks its global accesses by predicates"
        f" ({len(guarded[0] or guarded[1])} of {len(masked)} in PTX); {other.name}"
        f" branches around them ({counted(len(branches), 'branch')})"
    )
    return Statement(text, [each or branches for each in guarded])


def padding(sides: Sides) -> Statement | None:
    """Lanes that have nothing to load or store."""
    left, right = (_masked_part(each) for each in sides)
    if left is None or right is None or max(left, right) < _NOTEWORTHY_MASKED:
        return None
    evidence = [_masked(each) for each in sides]
    whose = greater(left, right, least=_NOTEWORTHY_MASKED)
    idle = "of the lanes that come to a load or store of global memory"
    if whose is None:
        text = f"{max(left, right):.0%} {idle} are masked off, on both sides"
        return Statement(text, evidence)
    user, other = in_order(whose, sides)
    most, least = in_order(whose, (left, right))
    is_triton = user.code.language == "triton" != other.code.language
    why = "; Triton's tiles are powers of two" if is_triton else ""
    text = (
        f"{most:.0%} {idle} are masked off in {user.name}, {least:.0%} in"
        f" {other.name}{why}"
    )
    return Statement(text, evidence, whose)


def _masked_part(side: Subject) -> float | None:
    """The part of the lanes that are masked off or led around, weighed by bytes."""
    if side.accesses("global") is None:
        return None
    executed = side.code.simulation.executed
    came = moved = 0
    for each in side.code.ptx.in_category("global load", "global store"):
        came += _arrived(each, side) * each.access_bytes
        moved += executed[each.index] * each.access_bytes
    return (came - moved) / came if came else None


def _masked(side: Subject) -> list[Instruction]:
    """The accesses that not all lanes which come to them execute."""
    return [
        each
        for each in side.code.ptx.in_category("global load", "global store")
        if side.code.simulation.executed[each.index] < _arrived(each, side)
    ]


def _arrived(access: Instruction, side: Subject) -> int:
    """How many lanes come to an access, to its predicate or the branch around it."""
    passed = {access.index}
    if access.predicate:
        block = side.ways.block(access)
        passed |= {each.index for each in block if not each.predicate}
    elif guard := side.ways.guard(access):
        passed.add(guard.index)
    return max(side.code.simulation.executed[index] for index in passed)
