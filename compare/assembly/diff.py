"""Two listings side by side, aligned by what their instructions do.

Two compilers never choose the same sequence of instructions, so a diff of their texts
is noise. What both must do stands in the same order, though: accesses to memory and
exchanges between threads. These hold the listings together. What is computed between
two of them is compared as a bag, because any order of it would do: one row for each
kind of instruction, with how many of them each side has, in the order of first use.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy
import numpy.typing

from compare.assembly.control_flow import find_loops
from compare.assembly.listing import Instruction, Listing
from compare.assembly.normalize import normalize

# The categories of rows that are no instructions of one category.
BACKGROUND = "background"
LOOP = "loop"

Kind = Literal["same", "changed", "left", "right"]

_MARKERS: dict[Kind, str] = {"same": " ", "changed": "|", "left": "<", "right": ">"}

# How much it counts to see two rows of this category side by side. What moves data
# holds the two listings together; arithmetic follows.
_WEIGHTS = {
    LOOP: 12.0,
    "global load": 12.0,
    "global store": 12.0,
    "generic memory": 12.0,
    "atomic": 12.0,
    "async copy": 12.0,
    "tensor copy": 12.0,
    "shared load": 8.0,
    "shared store": 8.0,
    "local memory": 8.0,
    "shuffle / vote": 8.0,
    "barrier": 4.0,
    "mbarrier": 4.0,
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
# Of the weight: for rows that are the same in every part, and for equal counts.
_SAME_BONUS = 0.25
_COUNT_BONUS = 0.1
# What moves data ends one bag of arithmetic and begins the next.
_MOVES_DATA = frozenset(
    {
        "global load",
        "global store",
        "generic memory",
        "atomic",
        "async copy",
        "tensor copy",
        "shared load",
        "shared store",
        "local memory",
        "shuffle / vote",
    }
)
# These keep their place in a bag, but do not end it: a compiler may compute before a
# barrier what the other one computes after it.
_SYNCHRONISES = frozenset({"barrier", "mbarrier", "fence / wait"})
_CONSUMERS = frozenset({"st", "ST", "STG", "STS", "STL", "red", "RED", "REDG"})
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


_BAG = "bag"


@dataclass
class _Section:
    """A part of one side: a bag, accesses of one category, or the edge of a loop.

    Attributes:
        name: what two sections must have in common to stand side by side.
        depth: the number of loops around it.
        instructions: its own, in program order.
        between: the kinds of arithmetic between its accesses.
    """

    name: str
    depth: int
    instructions: list[Instruction] = field(default_factory=list)
    between: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Item:
    """All instructions of one kind in a section: one side of a row.

    Attributes:
        operation: what must be equal for two items to stand side by side.
        form: what must be equal for them to be called the same.
        text: of the only instruction, if there is but one.
        summary: what is written in front of the number of several.
    """

    category: str
    operation: str
    form: str
    access_bytes: int
    text: str
    summary: str
    indent: str
    indices: tuple[int, ...]


_Pair = tuple[_Item | None, _Item | None]


def align(left: Listing, right: Listing) -> tuple[DiffRow, ...]:
    """Aligns two listings of the same language."""
    left_items, right_items = _sections_of_items(left), _sections_of_items(right)
    rows: list[DiffRow] = []
    next_left = next_right = 0
    ends = (len(left_items), len(right_items))
    for pair in [*_best_pairs(left_items, right_items), ends]:
        only_left = itertools.chain(*left_items[next_left : pair[0]])
        only_right = itertools.chain(*right_items[next_right : pair[1]])
        rows += [_row(each, None) for each in only_left]
        rows += [_row(None, each) for each in only_right]
        if pair != ends:
            pairs = _pairs_of_items(left_items[pair[0]], right_items[pair[1]])
            rows += itertools.starmap(_row, pairs)
        next_left, next_right = pair[0] + 1, pair[1] + 1
    return tuple(rows)


def _row(left: _Item | None, right: _Item | None) -> DiffRow:
    kind: Kind
    if left is None:
        kind = "right"
    elif right is None:
        kind = "left"
    else:
        kind = "same" if _are_same(left, right) else "changed"
    one = left or right
    assert one is not None
    counts_shown = any(each and len(each.indices) > 1 for each in (left, right))
    return DiffRow(
        kind=kind,
        left=_text(left, counts_shown) if left else "",
        right=_text(right, counts_shown) if right else "",
        category=one.category,
        left_indices=left.indices if left else (),
        right_indices=right.indices if right else (),
    )


def _are_same(left: _Item, right: _Item) -> bool:
    # No two backgrounds are alike, and it says nothing: they all count as the same.
    if left.category in (BACKGROUND, LOOP):
        return True
    return left.form == right.form and len(left.indices) == len(right.indices)


def _text(item: _Item, count_shown: bool) -> str:
    if item.category in (BACKGROUND, LOOP) or not count_shown:
        return item.indent + item.text
    return f"{item.indent}{item.summary} x{len(item.indices)}"


# ---- Which sections stand side by side, and which items in them ----


def _best_pairs(
    left: Sequence[list[_Item]], right: Sequence[list[_Item]]
) -> list[tuple[int, int]]:
    """The pairs, in order on both sides, whose gains have the greatest sum."""
    gain = numpy.array([[_gain(one, other) for other in right] for one in left])
    # best[i, j]: what the first i of the left and the first j of the right can reach.
    best = numpy.zeros((len(left) + 1, len(right) + 1))
    if right:
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


def _gain(left: list[_Item], right: list[_Item]) -> float:
    """What it is worth to see two sections side by side."""
    gain = 0.0
    for one, other in _partners(left, right):
        counts = sorted((len(one.indices), len(other.indices)))
        bonus = _COUNT_BONUS * counts[0] / counts[1]
        if one.form == other.form:
            bonus += _SAME_BONUS
        gain += _WEIGHTS[one.category] * (1 + bonus)
    return gain


def _pairs_of_items(left: list[_Item], right: list[_Item]) -> list[_Pair]:
    """The rows of two sections that stand side by side."""
    partners = _partners(left, right)
    partner_of_left = {id(one): other for one, other in partners}
    partner_of_right = {id(other): one for one, other in partners}
    pairs: list[_Pair] = [(each, partner_of_left.get(id(each))) for each in left]
    # What only the right has follows what it follows there.
    place = 0
    for each in right:
        partner = partner_of_right.get(id(each))
        if partner is None:
            while place < len(pairs) and pairs[place][1] is None:
                place += 1
            pairs.insert(place, (None, each))
            place += 1
        else:
            place = pairs.index((partner, each)) + 1
    return pairs


def _partners(left: list[_Item], right: list[_Item]) -> list[tuple[_Item, _Item]]:
    """The items that stand side by side: first those of one form, then the similar."""
    similarities: tuple[Callable[[_Item], tuple[object, ...]], ...] = (
        lambda item: (item.form,),
        lambda item: (item.operation, item.access_bytes),
        lambda item: (item.operation,),
    )
    partners: list[tuple[_Item, _Item]] = []
    free_left = [each for each in left if each.category not in _SYNCHRONISES]
    free_right = [each for each in right if each.category not in _SYNCHRONISES]
    for similarity in similarities:
        for one in list(free_left):
            for other in free_right:
                if similarity(one) == similarity(other):
                    partners.append((one, other))
                    free_left.remove(one)
                    free_right.remove(other)
                    break
    return partners + _synchronising_partners(left, right, partners)


def _synchronising_partners(
    left: list[_Item], right: list[_Item], partners: list[tuple[_Item, _Item]]
) -> list[tuple[_Item, _Item]]:
    """The barriers and fences that stand behind the same items on both sides."""
    numbers = {
        id(item): number for number, pair in enumerate(partners) for item in pair
    }

    def places(items: list[_Item]) -> dict[tuple[str, frozenset[int], int], _Item]:
        before: set[int] = set()
        found: dict[tuple[str, frozenset[int], int], _Item] = {}
        for each in items:
            if each.category in _SYNCHRONISES:
                place = (each.operation, frozenset(before))
                free = next(n for n in itertools.count() if (*place, n) not in found)
                found[(*place, free)] = each
            elif each.category != BACKGROUND and id(each) in numbers:
                before.add(numbers[id(each)])
        return found

    right_places = places(right)
    return [
        (each, right_places[place])
        for place, each in places(left).items()
        if place in right_places
    ]


# ---- One side ----


def _sections_of_items(listing: Listing) -> list[list[_Item]]:
    texts = [line.text for line in normalize(listing)]
    return [_items(each, texts) for each in _sections(listing)]


def _sections(listing: Listing) -> list[_Section]:
    loops = find_loops(listing)
    begins = Counter(min(loop.body) for loop in loops)
    ends = Counter(max(loop.body) for loop in loops)
    divider = _Divider()
    for each in listing.instructions:
        for _ in range(begins[each.index]):
            divider.begin_loop(each)
        divider.add(each)
        for _ in range(ends[each.index]):
            divider.end_loop(each)
    return [each for each in divider.sections if each.instructions]


class _Divider:
    """Divides one side's instructions: bags, with one other section between two."""

    def __init__(self) -> None:
        self.sections = [_Section(_BAG, depth=0)]
        self._depth = 0
        self._gap: list[Instruction] = []  # the events since the last access

    def begin_loop(self, instruction: Instruction) -> None:
        self._open("loop begins", instruction)
        self._depth += 1
        self.sections[-1].depth = self._depth

    def end_loop(self, instruction: Instruction) -> None:
        self._depth -= 1
        self._open("loop ends", instruction)

    def add(self, instruction: Instruction) -> None:
        if instruction.category not in _MOVES_DATA:
            self.sections[-1].instructions.append(instruction)
            if instruction.category in _WEIGHTS:
                self._gap.append(instruction)
            return
        name = instruction.category
        is_consumer = _stem(instruction) in _CONSUMERS
        if name in ("generic memory", "local memory"):
            name += " store" if is_consumer else " load"
        if self._continues(name):
            before, accesses, after = self.sections[-3:]
            accesses.instructions.append(instruction)
            # What is stored is computed before, what is loaded is used after.
            if is_consumer:
                before.instructions += after.instructions
                after.instructions = []
            self._gap = []
        else:
            self._open(name, instruction)

    def _open(self, name: str, instruction: Instruction) -> None:
        self.sections.append(_Section(name, self._depth, [instruction]))
        self.sections.append(_Section(_BAG, self._depth))
        self._gap = []

    def _continues(self, name: str) -> bool:
        """Whether an access belongs to those before it.

        It does if the same is done between them again and again. Anything else is what
        separates two reductions, for instance.
        """
        if len(self.sections) < 3 or self.sections[-2].name != name:
            return False
        if any(each.category in _SYNCHRONISES for each in self._gap):
            return False
        between = self.sections[-2].between
        kinds = {_form(each) for each in self._gap}
        if not between:
            between |= kinds
        return kinds <= between


def _items(section: _Section, texts: Sequence[str]) -> list[_Item]:
    indent = "  " * section.depth
    if section.name.startswith(LOOP):
        index = section.instructions[0].index
        text = "loop {" if section.name == "loop begins" else "}"
        return [_Item(LOOP, section.name, LOOP, 0, text, text, indent, (index,))]
    background: list[Instruction] = []
    kinds: dict[tuple[str, int], list[Instruction]] = {}
    arithmetic: set[str] = set()
    for each in section.instructions:
        if each.category not in _WEIGHTS:
            background.append(each)
            continue
        form = _form(each)
        place = 0
        if each.category in _SYNCHRONISES:
            # They keep their place: behind what was begun before them.
            place = len(arithmetic)
        else:
            arithmetic.add(form)
        kinds.setdefault((form, place), []).append(each)
    items = []
    if background:
        items.append(_background_item(background, indent))
    for (form, _), instructions in kinds.items():
        first = instructions[0]
        items.append(
            _Item(
                first.category,
                _operation(first),
                form,
                first.access_bytes,
                texts[first.index],
                first.opcode,
                indent,
                tuple(each.index for each in instructions),
            )
        )
    return items


def _background_item(instructions: list[Instruction], indent: str) -> _Item:
    counts = Counter(each.category.partition(" / ")[0] for each in instructions)
    text = ", ".join(f"{name} x{count}" for name, count in counts.most_common())
    indices = tuple(each.index for each in instructions)
    return _Item(BACKGROUND, BACKGROUND, BACKGROUND, 0, text, text, indent, indices)


def _operation(instruction: Instruction) -> str:
    stem = _stem(instruction)
    if instruction.category in _MOVES_DATA - {"shuffle / vote"}:
        return instruction.category
    if instruction.category in ("mbarrier", "fence / wait"):
        return _form(instruction)
    if instruction.category == "barrier":
        return instruction.category
    if instruction.category == "conversion":  # to a wide type is not to a narrow one
        return f"{stem} from {instruction.opcode.rpartition('.')[2]}"
    return f"{instruction.category} {stem}"


def _stem(instruction: Instruction) -> str:
    return instruction.opcode.partition(".")[0]


def _form(instruction: Instruction) -> str:
    """The instruction without what says nothing about what it does."""
    parts = instruction.opcode.split(".")
    if instruction.access_bytes:
        meaning = [part for part in parts if not _WIDTH.fullmatch(part)]
        return f"{'.'.join(meaning)} {instruction.access_bytes}"
    if instruction.category == "fp math":
        parts = [part for part in parts if part != "rn"]  # the default
    return ".".join(parts).replace("barrier.", "bar.", 1)
