"""Two listings side by side, aligned by what their instructions do.

Two compilers never choose the same sequence of instructions, so a diff of their texts
is noise. What both must do stands in the same order, though: loads, reductions,
barriers, special functions, stores. These events are folded where they repeat, and
matched; the address arithmetic around them is condensed to one row for each stretch.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy
import numpy.typing

from compare.codegen.control_flow import find_loops
from compare.codegen.fold import Node, Step, fold
from compare.codegen.listing import Instruction, Listing
from compare.codegen.normalize import normalize

# The categories of rows that are no instructions of one category.
BACKGROUND = "background"
LOOP = "loop"

Kind = Literal["same", "changed", "left", "right"]

_MARKERS: dict[Kind, str] = {"same": " ", "changed": "|", "left": "<", "right": ">"}

# How much it counts to see two rows of this category side by side. What moves data or
# synchronises holds the two listings together; arithmetic follows.
_WEIGHTS = {
    LOOP: 12.0,
    "global load": 12.0,
    "global store": 12.0,
    "generic memory": 12.0,
    "atomic": 12.0,
    "async copy": 12.0,
    "barrier": 10.0,
    "shared load": 8.0,
    "shared store": 8.0,
    "local memory": 8.0,
    "shuffle / vote": 8.0,
    "fence / wait": 4.0,
    "cache hint": 4.0,
    "tensor core": 8.0,
    "special function": 6.0,
    "division": 6.0,
    "float64": 6.0,
    "fp math": 2.0,
    "conversion": 2.0,
    "other": 2.0,
    BACKGROUND: 0.25,
}
_EQUAL_BONUS = 0.25  # of the weight, for instructions that are the same in every part
_WIDTH = re.compile(r"v\d|[busf]\d+|[US]?(?:8|16|32|64|128|256)")


@dataclass(frozen=True)
class DiffRow:
    """One row of the aligned listings.

    Attributes:
        kind: whether both sides have it, and alike, or only one of them.
        left: the text of the left side; empty if it has none.
        right: the text of the right side.
        category: of the instructions; `loop` where one begins or ends;
            `background` for arithmetic on integers, moves, comparisons and branches.
        left_indices: the instructions of the left listing that the row stands for.
        right_indices: those of the right listing.
    """

    kind: Kind
    left: str
    right: str
    category: str
    left_indices: tuple[int, ...]
    right_indices: tuple[int, ...]

    @property
    def marker(self) -> str:
        """What stands between the columns, as `diff -y` prints it."""
        return _MARKERS[self.kind]


@dataclass(frozen=True)
class _Item:
    """One row of one side: an event, where one repeats, or what is condensed."""

    category: str
    operation: str  # what must be equal for two rows to stand side by side
    form: str  # what must be equal for them to be called the same
    text: str
    indices: tuple[int, ...]


def align(left: Listing, right: Listing) -> tuple[DiffRow, ...]:
    """Aligns two listings of the same language."""
    left_items, right_items = _items(left), _items(right)
    rows: list[DiffRow] = []
    next_left = next_right = 0
    ends = (len(left_items), len(right_items))
    for pair in [*_best_pairs(left_items, right_items), ends]:
        rows += [_row(each, None) for each in left_items[next_left : pair[0]]]
        rows += [_row(None, each) for each in right_items[next_right : pair[1]]]
        if pair != ends:
            rows.append(_row(left_items[pair[0]], right_items[pair[1]]))
        next_left, next_right = pair[0] + 1, pair[1] + 1
    return tuple(rows)


def _row(left: _Item | None, right: _Item | None) -> DiffRow:
    kind: Kind
    if left is None:
        kind = "right"
    elif right is None:
        kind = "left"
    else:
        kind = "same" if left.form == right.form else "changed"
    one = left or right
    assert one is not None
    return DiffRow(
        kind=kind,
        left=left.text if left else "",
        right=right.text if right else "",
        category=one.category,
        left_indices=left.indices if left else (),
        right_indices=right.indices if right else (),
    )


def _best_pairs(left: Sequence[_Item], right: Sequence[_Item]) -> list[tuple[int, int]]:
    """The pairs, in order on both sides, whose weights have the greatest sum."""
    gain = _gains(left, right)
    # best[i, j]: what the first i rows of the left and first j of the right can reach.
    best = numpy.zeros((len(left) + 1, len(right) + 1))
    for i in range(len(left)):
        candidates = numpy.maximum(best[i, 1:], best[i, :-1] + gain[i])
        best[i + 1, 1:] = numpy.maximum.accumulate(candidates)
    pairs = []
    i, j = len(left), len(right)
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs[::-1]


def _gains(
    left: Sequence[_Item], right: Sequence[_Item]
) -> numpy.typing.NDArray[numpy.float64]:
    """What it is worth to see each row of the left beside each of the right."""
    numbers: dict[str, int] = {}

    def numbered(names: Iterable[str]) -> numpy.typing.NDArray[numpy.int64]:
        return numpy.array(
            [numbers.setdefault(name, len(numbers)) for name in names],
            dtype=numpy.int64,
        )

    operations = [numbered(each.operation for each in side) for side in (left, right)]
    forms = [numbered(each.form for each in side) for side in (left, right)]
    weights = numpy.array([_WEIGHTS[each.category] for each in left])
    can_pair = numpy.equal.outer(*operations)
    are_same = numpy.equal.outer(*forms)
    gains: numpy.typing.NDArray[numpy.float64] = (
        weights[:, None] * can_pair * (1 + _EQUAL_BONUS * are_same)
    )
    return gains


def _items(listing: Listing) -> list[_Item]:
    loops = find_loops(listing)
    begins = Counter(min(loop.body) for loop in loops)
    ends = Counter(max(loop.body) for loop in loops)
    writer = _Writer(listing)
    stretch: list[Instruction] = []
    for each in listing.instructions:
        if begins[each.index]:
            writer.add_stretch(stretch)
            stretch = []
            writer.open_loops(each.index, begins[each.index])
        stretch.append(each)
        if ends[each.index]:
            writer.add_stretch(stretch)
            stretch = []
            writer.close_loops(each.index, ends[each.index])
    writer.add_stretch(stretch)
    return writer.items


class _Writer:
    """Turns one side's instructions into rows: folded, indented, and condensed."""

    def __init__(self, listing: Listing) -> None:
        self.items: list[_Item] = []
        self._depth = 0
        self._instructions = listing.instructions
        self._texts = [line.text for line in normalize(listing)]

    def add_stretch(self, stretch: Sequence[Instruction]) -> None:
        """Adds the rows of instructions without a loop among them."""
        events = [
            Step(_form(each), (each.index,)) for each in stretch if _is_event(each)
        ]
        background = [each for each in stretch if not _is_event(each)]
        for node in fold(events):
            # What stands between the repetitions is counted in front of them.
            last = max(node.indices)
            self._add_background([each for each in background if each.index < last])
            background = [each for each in background if each.index > last]
            self._add_node(node)
        self._add_background(background)

    def open_loops(self, index: int, number: int) -> None:
        for _ in range(number):
            self._add(LOOP, "loop begins", "loop", "loop {", (index,))
            self._depth += 1

    def close_loops(self, index: int, number: int) -> None:
        for _ in range(number):
            self._depth -= 1
            self._add(LOOP, "loop ends", "loop", "}", (index,))

    def _add_node(self, node: Node) -> None:
        if isinstance(node, Step):
            self._add_event(node.indices, count=1)
        elif len(node.pattern) == 1:
            self._add_event(node.indices, node.count)
        else:
            first_row = len(self.items)
            for each in node.pattern:
                self._add_node(each)
            self._bracket(first_row, node.count)

    def _bracket(self, first_row: int, count: int) -> None:
        """Marks the rows from this one on as one pattern that occurs `count` times."""
        indent = "  " * self._depth
        times = f"{count}x "
        for number in range(first_row, len(self.items)):
            mark = "\u2502"
            if number == first_row:
                mark = "\u250c"
            elif number == len(self.items) - 1:
                mark = "\u2514"
            lead = times if number == first_row else " " * len(times)
            text = self.items[number].text.removeprefix(indent)
            self.items[number] = replace(
                self.items[number], text=f"{indent}{lead}{mark} {text}"
            )

    def _add_event(self, indices: tuple[int, ...], count: int) -> None:
        first = self._instructions[indices[0]]
        if len(indices) == 1:
            text = self._texts[first.index]
        else:
            text = first.opcode + (f" x{count}" if count > 1 else "")
        form = f"{_form(first)} x{len(indices)}"
        self._add(first.category, _operation(first), form, text, indices)

    def _add_background(self, instructions: Sequence[Instruction]) -> None:
        if instructions:
            counts = Counter(each.category for each in instructions).most_common()
            text = ", ".join(f"{name} x{count}" for name, count in counts)
            indices = tuple(each.index for each in instructions)
            # No two are alike, and it says nothing: they all count as the same.
            self._add(BACKGROUND, BACKGROUND, BACKGROUND, text, indices)

    def _add(
        self,
        category: str,
        operation: str,
        form: str,
        text: str,
        indices: tuple[int, ...],
    ) -> None:
        text = "  " * self._depth + text
        self.items.append(_Item(category, operation, form, text, indices))


def _is_event(instruction: Instruction) -> bool:
    return instruction.category in _WEIGHTS


def _operation(instruction: Instruction) -> str:
    stem = instruction.opcode.partition(".")[0]
    by_stem = ("fp math", "special function", "shuffle / vote", "float64", "other")
    if instruction.category in by_stem:
        return f"{instruction.category} {stem}"
    return instruction.category


def _form(instruction: Instruction) -> str:
    """The instruction without what says nothing about what it does."""
    parts = instruction.opcode.split(".")
    if instruction.access_bytes:
        meaning = [part for part in parts if not _WIDTH.fullmatch(part)]
        return f"{'.'.join(meaning)} {instruction.access_bytes}"
    if instruction.category == "fp math":
        parts = [part for part in parts if part != "rn"]  # the default
    return ".".join(parts).replace("barrier.", "bar.", 1)
