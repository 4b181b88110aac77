"""A listing cut into what an alignment keeps together: sections, and their items."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from compare.assembly.classify import MEMORY_CATEGORIES, OTHER
from compare.assembly.control_flow import find_loops
from compare.assembly.listing import Instruction, Listing
from compare.assembly.normalize import normalize

# The categories of rows that are no instructions of one category.
BACKGROUND = "background"
LOOP = "loop"
# The worth of seeing two rows of a category side by side. Accesses to memory hold the
# two listings together; arithmetic follows.
WEIGHTS = {
    LOOP: 12.0,
    **dict.fromkeys(MEMORY_CATEGORIES, 12.0),
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
    OTHER: 2.0,
    BACKGROUND: 0.25,
}
# Instructions that move data end one bag of arithmetic and begin the next.
_MOVES_DATA = {*MEMORY_CATEGORIES, "shuffle / vote"}
# These keep their place in a bag, but do not end it: a compiler may compute before a
# barrier what the other one computes after it.
SYNCHRONISES = frozenset({"barrier", "mbarrier", "fence / wait"})
_CONSUMERS = frozenset({"st", "ST", "STG", "STS", "STL", "red", "RED", "REDG"})
_WIDTH = re.compile(r"v\d|[busf]\d+|[US]?(?:8|16|32|64|128|256)")
_BAG = "bag"


@dataclass
class _Section:
    """A part of one side: a bag, accesses of one category, or the edge of a loop."""

    name: str  # what two sections must have in common to stand side by side
    depth: int  # the number of loops around it
    instructions: list[Instruction] = field(default_factory=list)
    # The kinds of arithmetic between its accesses.
    between: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Item:
    """All instructions of one kind in a section: one side of a row."""

    category: str
    operation: str  # what must be equal for two items to stand side by side
    form: str  # what must be equal for them to be called the same
    access_bytes: int
    text: str  # of the only instruction, if there is but one
    summary: str  # of several, in front of their number
    indices: tuple[int, ...]


def sections_of_items(listing: Listing) -> list[list[Item]]:
    """The items of each section, in program order."""
    texts = [line.text for line in normalize(listing)]
    return [_items(each, texts) for each in _sections(listing)]


def _sections(listing: Listing) -> list[_Section]:
    loops = find_loops(listing)
    begins = Counter(min(loop.body) for loop in loops)
    ends = Counter(max(loop.body) for loop in loops)
    divider = _Divider()
    for each in listing.instructions:
        for _ in range(begins[each.index]):
            divider.open("loop begins", each, deeper=1)
        divider.add(each)
        for _ in range(ends[each.index]):
            divider.open("loop ends", each, deeper=-1)
    return [each for each in divider.sections if each.instructions]


class _Divider:
    """Divides one side's instructions: bags, with one other section between two."""

    def __init__(self) -> None:
        self.sections = [_Section(_BAG, depth=0)]
        self._depth = 0
        self._gap: list[Instruction] = []  # the events since the last access

    def open(self, name: str, instruction: Instruction, deeper: int = 0) -> None:
        """Begins a section, and a bag behind it, in so many loops more."""
        outer = min(self._depth, self._depth + deeper)
        self._depth += deeper
        self.sections.append(_Section(name, outer, [instruction]))
        self.sections.append(_Section(_BAG, self._depth))
        self._gap = []

    def add(self, instruction: Instruction) -> None:
        if instruction.category not in _MOVES_DATA:
            self.sections[-1].instructions.append(instruction)
            if instruction.category in WEIGHTS:
                self._gap.append(instruction)
            return
        name = instruction.category
        is_consumer = instruction.stem in _CONSUMERS
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
            self.open(name, instruction)

    def _continues(self, name: str) -> bool:
        """Whether an access belongs to those before it.

        It does if the same is done between them again and again. Anything else is what
        separates two reductions, for instance.
        """
        if len(self.sections) < 3 or self.sections[-2].name != name:
            return False
        if any(each.category in SYNCHRONISES for each in self._gap):
            return False
        between = self.sections[-2].between
        kinds = {_form(each) for each in self._gap}
        if not between:
            between |= kinds
        return kinds <= between


def _items(section: _Section, texts: Sequence[str]) -> list[Item]:
    indent = "  " * section.depth
    if section.name.startswith(LOOP):
        index = section.instructions[0].index
        text = indent + ("loop {" if section.name == "loop begins" else "}")
        return [Item(LOOP, section.name, LOOP, 0, text, text, (index,))]
    kinds: dict[tuple[str, int], list[Instruction]] = {(BACKGROUND, 0): []}
    arithmetic: set[str] = set()
    for each in section.instructions:
        form = _form(each) if each.category in WEIGHTS else BACKGROUND
        place = 0
        if each.category in SYNCHRONISES:  # keeps its place behind what began before it
            place = len(arithmetic)
        elif form != BACKGROUND:
            arithmetic.add(form)
        kinds.setdefault((form, place), []).append(each)
    return [
        _item(form, instructions, indent, texts[instructions[0].index])
        for (form, _), instructions in kinds.items()
        if instructions
    ]


def _item(form: str, instructions: list[Instruction], indent: str, text: str) -> Item:
    first, indices = instructions[0], tuple(each.index for each in instructions)
    if form == BACKGROUND:
        counts = Counter(each.category.partition(" / ")[0] for each in instructions)
        listed = (f"{name} x{count}" for name, count in counts.most_common())
        text = indent + ", ".join(listed)
        return Item(BACKGROUND, BACKGROUND, BACKGROUND, 0, text, text, indices)
    return Item(
        first.category,
        _operation(first),
        form,
        first.access_bytes,
        indent + text,
        indent + first.opcode,
        indices,
    )


def _operation(instruction: Instruction) -> str:
    if instruction.category in (*MEMORY_CATEGORIES, "barrier"):
        return instruction.category
    if instruction.category in ("mbarrier", "fence / wait"):
        return _form(instruction)
    if instruction.category == "conversion":  # to a wide type is not to a narrow one
        return f"{instruction.stem} from {instruction.opcode.rpartition('.')[2]}"
    return f"{instruction.category} {instruction.stem}"


def _form(instruction: Instruction) -> str:
    """The opcode without widths and defaults, with the bytes that it accesses."""
    parts = instruction.opcode.split(".")
    if instruction.access_bytes:
        meaning = [part for part in parts if not _WIDTH.fullmatch(part)]
        return f"{'.'.join(meaning)} {instruction.access_bytes}"
    if instruction.category == "fp math":
        parts = [part for part in parts if part != "rn"]  # the default
    return ".".join(parts).replace("barrier.", "bar.", 1)
