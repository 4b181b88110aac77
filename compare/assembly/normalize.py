"""Listings without what differs for no reason: names of registers, labels, kernels."""

import re
from collections import Counter
from dataclasses import dataclass

from compare.assembly.listing import Instruction, Listing

# What is renamed in the operands. Registers with a meaning (%tid.x, RZ, PT) are not:
# they have no number.
_NAMES = {
    "ptx": re.compile(
        r"%(?!clock|envreg|pm)(?P<register>[a-z]+)\d+\b"
        r"|(?P<label>\$\w+)"
        r"|(?P<parameter>\b\w+_param_\d+\b)"
        r"|(?P<symbol>(?<![\w%.$])[A-Za-z_][\w$]+)"
    ),
    "sass": re.compile(
        r"\b(?P<register>UR|UP|R|P|B)\d+\b"
        r"|(?P<quoted>`\()?(?P<label>\.L_\w+)(?(quoted)\))"  # or in a table of targets
        r"|`\((?P<symbol>[\w$]+)\)"
        r"|(?P<hint>\.reuse\b)"
    ),
}
# nvcc names PTX registers after what they hold, LLVM after their size alone.
_REGISTER_CLASSES = {"f": "r", "fd": "rd"}
# What one compiler writes into addresses and vectors, and the other does not.
_PADDING = re.compile(r"(?<=[\[{])\s+|\s+(?=[\]}])|(?<=\w)\s+(?=\+)|(?<=\+)\s+")
_NO_OFFSET = re.compile(r"\+0(?=\])")


@dataclass(frozen=True)
class NormalLine:
    """One instruction of a normalised listing.

    Attributes:
        labels: the labels in front of it that some instruction refers to.
        text: the instruction.
        index: its index in the listing.
    """

    labels: tuple[str, ...]
    text: str
    index: int


def normalize(listing: Listing) -> tuple[NormalLine, ...]:
    """Renames registers, labels and symbols in the order of their appearance."""
    names = _Names(listing)
    return tuple(
        NormalLine(names.labels_of(each), names.text_of(each), each.index)
        for each in listing.instructions
    )


def _without_padding(operand: str) -> str:
    """`[ %rd9 + 0 ]` as `[%rd9]`, and `{ %r5, %r6 }` as `{%r5, %r6}`."""
    return _NO_OFFSET.sub("", _PADDING.sub("", operand))


class _Names:
    """The new names that one listing was given so far."""

    def __init__(self, listing: Listing) -> None:
        self._pattern = _NAMES[listing.language]
        self._register_mark = "%" if listing.language == "ptx" else ""
        self._renamed = {listing.kernel: "kernel"}
        self._counts: Counter[str] = Counter()
        self._targets = {
            found["label"]
            for each in listing.instructions
            for operand in each.operands
            for found in self._pattern.finditer(operand)
        }

    def labels_of(self, instruction: Instruction) -> tuple[str, ...]:
        return tuple(
            self._rename(label, "L")
            for label in instruction.labels
            if label in self._targets
        )

    def text_of(self, instruction: Instruction) -> str:
        guard = instruction.predicate
        operands = ", ".join(map(_without_padding, instruction.operands))
        text = f"@{self._normal(guard)} " if guard else ""
        return f"{text}{instruction.opcode} {self._normal(operands)}".rstrip()

    def _normal(self, text: str) -> str:
        return self._pattern.sub(self._replacement, text)

    def _replacement(self, found: re.Match[str]) -> str:
        kind = str(found.lastgroup)
        if kind == "register":
            name = _REGISTER_CLASSES.get(found[kind], found[kind])
            return self._rename(found[0], f"{self._register_mark}{name}")
        if kind == "parameter":
            return "param_" + found[0].rpartition("_")[2]
        if kind == "hint":
            return ""
        return self._rename(found[kind], "L" if kind == "label" else "symbol_")

    def _rename(self, name: str, stem: str) -> str:
        if name not in self._renamed:
            self._renamed[name] = f"{stem}{self._counts[stem]}"
            self._counts[stem] += 1
        return self._renamed[name]
