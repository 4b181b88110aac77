"""The steps of a warp through a kernel, folded into loops.

Of the instructions that it executes, those that a reader wants to see: accesses to
memory, exchanges between threads, and what the arithmetic is slow at. The rest, most of
it addresses and plain arithmetic, is counted elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from compare.assembly.classify import CATEGORIES, is_copy_to_global
from compare.assembly.fold import Loop, fold
from compare.assembly.listing import Instruction, Listing

_SHOWN = {*CATEGORIES[: CATEGORIES.index("fp math")]} - {"cache hint"}
_SPECIAL_FUNCTIONS = {
    "ex2": "2^x",
    "lg2": "log2",
    "rcp": "1/x",
    "rsqrt": "1/sqrt",
    "sqrt": "sqrt",
    "sin": "sin",
    "cos": "cos",
    "tanh": "tanh",
}
_SHAPE = re.compile(r"\.(m\d+n\d+k\d+)\b")


@dataclass(frozen=True)
class Row:
    """A line of a folded trace."""

    depth: int  # in how many loops it stands
    text: str  # what happens, such as "global load 16 B"; empty for a loop's head
    count: int  # how many times in a row
    is_loop: bool  # the head of a loop, whose body follows one level deeper


def rows_of(ptx: Listing, traces: Mapping[int, Sequence[int]]) -> tuple[Row, ...]:
    """The folded traces of warps, each of several under its number.

    A trace has the indices of the instructions that the warp executes, in order.
    """
    rows: list[Row] = []
    for warp, trace in traces.items():
        if len(traces) > 1:
            rows.append(Row(0, f"warp {warp}:", 1, is_loop=False))
        events = (event_of(ptx.instructions[index]) for index in trace)
        rows += _folded(fold([each for each in events if each]), int(len(traces) > 1))
    return tuple(rows)


def _folded(nodes: Sequence[str | Loop[str]], depth: int) -> Iterator[Row]:
    for node in nodes:
        if isinstance(node, str):
            yield Row(depth, node, 1, is_loop=False)
        elif len(node.body) == 1 and isinstance(node.body[0], str):
            yield Row(depth, node.body[0], node.count, is_loop=False)
        else:
            yield Row(depth, "", node.count, is_loop=True)
            yield from _folded(node.body, depth + 1)


def event_of(instruction: Instruction) -> str | None:
    """An instruction in a word or two; None if it is not shown."""
    category = instruction.category
    if category not in _SHOWN:
        return None
    stem = instruction.stem
    if category == "special function":
        return _SPECIAL_FUNCTIONS.get(stem, stem)
    if stem == "cp" and category == "fence / wait":
        groups = (each for each in instruction.opcode.split(".") if "_" in each)
        return " ".join(["copies", *groups])
    if category in ("shuffle / vote", "mbarrier", "fence / wait"):
        return " ".join(instruction.opcode.split(".")[:2])
    if category == "tensor core":
        shape = _SHAPE.search(instruction.opcode)
        return f"{stem} {shape[1]}" if shape else stem
    if category == "tensor copy":
        return f"{category} {'out' if is_copy_to_global(instruction.opcode) else 'in'}"
    if instruction.access_bytes:
        return f"{category} {instruction.access_bytes} B"
    return category
