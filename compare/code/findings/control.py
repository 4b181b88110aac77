"""Rules about the order of things: loops, conditions, and lanes left without work."""

from __future__ import annotations

from collections.abc import Sequence

from compare.assembly.control_flow import find_loops
from compare.assembly.listing import Instruction
from compare.code.findings.evidence import Statement, Subject, greater
from compare.code.findings.words import amount, counted, listed, percent

_NOTEWORTHY_RATIO = 1.5  # of rounds
_NOTEWORTHY_MASKED = 0.1  # of all lanes


def loops(cuda: Subject, triton: Subject) -> Statement | None:
    """Loops that the compilers left, and how many rounds they take."""
    sides = (cuda, triton)
    heads = [_loop_heads(each) for each in sides]
    rounds = [_rounds(side, each) for side, each in zip(sides, heads, strict=True)]
    if bool(heads[0]) != bool(heads[1]):
        place = 0 if heads[0] else 1
        number = rounds[place]
        of = f" ({counted(number, 'round')} in each thread)" if number else ""
        text = (
            f"{sides[place].name} has {counted(len(heads[place]), 'loop')}{of};"
            f" {sides[1 - place].name} none: its code runs straight to the end"
        )
        return Statement(text, heads, sides[place].side)
    left, right = rounds
    # Where warps do different things, an average tells of none of them.
    if not left or not right or any(map(_register_shares, sides)):
        return None
    whose = greater(
        left / cuda.code.elements_per_thread,
        right / triton.code.elements_per_thread,
        _NOTEWORTHY_RATIO,
    )
    if whose is None:
        return None
    text = (
        f"Each thread goes round {amount(left)} times in CUDA"
        f" ({counted(len(heads[0]), 'loop')}), {amount(right)} times in Triton"
        f" ({counted(len(heads[1]), 'loop')})"
    )
    return Statement(text, heads, whose)


def specialisation(cuda: Subject, triton: Subject) -> Statement | None:
    """Warps of a block that do different things, for which they share out registers."""
    sides = (cuda, triton)
    shares = [_register_shares(each) for each in sides]
    if not any(shares):
        return None
    described = [
        f"{listed(sorted({each.operands[0] for each in share}, key=int))} registers"
        if share
        else ""
        for share in shares
    ]
    if all(shares):
        text = (
            "Warps of a block do different things, and share out its registers for"
            f" that (setmaxnreg): a thread has {described[0]} in CUDA, {described[1]}"
            " in Triton"
        )
        return Statement(text, shares)
    place = 0 if shares[0] else 1
    text = (
        f"{sides[place].name} gives warps of a block different things to do, and to"
        f" their threads {described[place]} (setmaxnreg); {sides[1 - place].name} all"
        " the same"
    )
    return Statement(text, shares, sides[place].side)


def _register_shares(side: Subject) -> list[Instruction]:
    waits = side.ptx("fence / wait")
    return [each for each in waits if each.opcode.startswith("setmaxnreg")]


def _loop_heads(side: Subject) -> list[Instruction]:
    """Of loops that are in no other one, without those that are not gone round."""
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


def guards(cuda: Subject, triton: Subject) -> Statement | None:
    """How accesses are kept from going past the end."""
    sides = (cuda, triton)
    accesses = [each.ptx("global load", "global store") for each in sides]
    guarded = [[each for each in side if each.predicate] for side in accesses]
    if not all(accesses) or bool(guarded[0]) == bool(guarded[1]):
        return None
    place = 0 if guarded[0] else 1
    other = sides[1 - place]
    around = {other.ways.guard(each) for each in accesses[1 - place]} - {None}
    branches = [each for each in other.ptx("branch / control") if each in around]
    if not branches:
        return None
    text = (
        f"{sides[place].name} masks its global accesses by predicates"
        f" ({len(guarded[place])} of {len(accesses[place])} in PTX); {other.name}"
        f" branches around them ({counted(len(branches), 'branch')})"
    )
    return Statement(text, [guarded[0] or branches, guarded[1] or branches])


def padding(cuda: Subject, triton: Subject) -> Statement | None:
    """Lanes that have nothing to load or store."""
    sides = (cuda, triton)
    masked = [_masked_part(each) for each in sides]
    left, right = masked
    if left is None or right is None or max(left, right) < _NOTEWORTHY_MASKED:
        return None
    evidence = [_masked(each) for each in sides]
    whose = greater(left, right, least=_NOTEWORTHY_MASKED)
    idle = "of the lanes that come to a load or store of global memory"
    if whose is None:
        text = f"{percent(max(left, right))} {idle} are masked off, on both sides"
        return Statement(text, evidence)
    most, least = (left, right) if whose == "cuda" else (right, left)
    name, other = ("CUDA", "Triton") if whose == "cuda" else ("Triton", "CUDA")
    why = "; Triton's tiles are powers of two" if whose == "triton" else ""
    text = (
        f"{percent(most)} {idle} are masked off in {name}, {percent(least)} in"
        f" {other}{why}"
    )
    return Statement(text, evidence, whose)


def _masked_part(side: Subject) -> float | None:
    """The part of the lanes that are masked off or led around, weighed by bytes."""
    if side.simulation is None or side.accesses("global") is None:
        return None
    executed = side.simulation.executed
    came = moved = 0
    for each in side.code.ptx.in_category("global load", "global store"):
        arrived = max(executed[other] for other in _come_to(each, side))
        came += arrived * each.access_bytes
        moved += executed[each.index] * each.access_bytes
    return (came - moved) / came if came else None


def _masked(side: Subject) -> list[Instruction]:
    """The accesses that not all lanes which come to them execute."""
    assert side.simulation
    executed = side.simulation.executed
    return [
        each
        for each in side.code.ptx.in_category("global load", "global store")
        if executed[each.index] < max(executed[i] for i in _come_to(each, side))
    ]


def _come_to(access: Instruction, side: Subject) -> list[int]:
    """Instructions of which one is executed by all lanes that come to an access."""
    if access.predicate:
        block = side.ways.block(access)
        return [each.index for each in block if each is access or not each.predicate]
    guard = side.ways.guard(access)
    return [access.index, guard.index] if guard else [access.index]
