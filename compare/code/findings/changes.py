"""Rules about two versions of a kernel in one language: what an edit has changed."""

from __future__ import annotations

from compare.assembly.listing import Listing
from compare.assembly.normalize import normalize
from compare.code.findings.evidence import Sides, Statement, greater
from compare.code.words import amount, counted


def same_code(sides: Sides) -> Statement | None:
    """Whether the compiler made the same of both."""
    left, right = (_text_of(each.code.ptx) for each in sides)
    if left != right:
        return None
    return Statement("The compiler makes the same PTX of both", ([], []))


def _text_of(listing: Listing) -> list[tuple[tuple[str, ...], str]]:
    """The listing without the names that a compiler makes up."""
    return [(tuple(each.labels), each.text) for each in normalize(listing)]


def barriers(sides: Sides) -> Statement | None:
    """How often a warp waits for the others of its block."""
    found = [each.ptx("barrier") for each in sides]
    left, right = (side.per_warp(each) for side, each in zip(sides, found, strict=True))
    if left is None or right is None or left == right:
        return None
    text = (
        f"A warp comes to {counted(left, 'barrier')} in {sides[0].name}, to"
        f" {amount(right) if right else 'none'} in {sides[1].name}"
    )
    return Statement(text, found, greater(left, right))


def executed(sides: Sides) -> Statement | None:
    """How many instructions the work takes."""
    left, right = (each.per_element(each.code.ptx.instructions) for each in sides)
    if left is None or right is None or amount(left) == amount(right):
        return None
    text = (
        f"{amount(left)} PTX instructions are executed for each element of the output"
        f" in {sides[0].name}, {amount(right)} in {sides[1].name}"
    )
    return Statement(text, ([], []), greater(left, right))
