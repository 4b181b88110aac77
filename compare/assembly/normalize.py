"""Listings without what differs for no reason: names of registers, labels, kernels."""

import re
from collections import Counter
from dataclasses import dataclass

from compare.assembly.listing import Instruction, Listing

# Names to replace. Registers with a meaning (%tid.x, RZ, PT) have no number, and stay.
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
# In addresses and vectors only one compiler writes `[ %rd9 + 0 ]`, `{ %r5, %r6 }`.
_PADDING = re.compile(r"(?<=[\[{])\s+|\s+(?=[\]}])|(?<=\w)\s+(?=\+)|(?<=\+)\s+")
_NO_OFFSET = re.compile(r"\+0(?=\])")


@dataclass(frozen=True)
class NormalLine:
    """One instruction of a normalised listing."""

    labels: tuple[str, ...]  # the labels in front of it that some instruction refers to
    text: str
    index: int  # its index in the listing


def normalize(listing: Listing) -> tuple[NormalLine, ...]:
    """Renames registers, labels and symbols in the order of their appearance."""
    pattern = _NAMES[listing.language]
    mark = "%" if listing.language == "ptx" else ""
    renamed = {listing.kernel: "kernel"}
    counts: Counter[str] = Counter()
    targets = {
        found["label"]
        for each in listing.instructions
        for operand in each.operands
        for found in pattern.finditer(operand)
    }

    def rename(name: str, stem: str) -> str:
        if name not in renamed:
            renamed[name] = f"{stem}{counts[stem]}"
            counts[stem] += 1
        return renamed[name]

    def replacement(found: re.Match[str]) -> str:
        kind = str(found.lastgroup)
        if kind == "register":
            name = _REGISTER_CLASSES.get(found[kind], found[kind])
            return rename(found[0], f"{mark}{name}")
        if kind == "parameter":
            return "param_" + found[0].rpartition("_")[2]
        if kind == "hint":
            return ""
        return rename(found[kind], "L" if kind == "label" else "symbol_")

    def normal_line(each: Instruction) -> NormalLine:
        labels = tuple(rename(label, "L") for label in each.labels if label in targets)
        guard = (
            f"@{pattern.sub(replacement, each.predicate)} " if each.predicate else ""
        )
        operands = _NO_OFFSET.sub("", _PADDING.sub("", ", ".join(each.operands)))
        text = f"{guard}{each.opcode} {pattern.sub(replacement, operands)}".rstrip()
        return NormalLine(labels, text, each.index)

    return tuple(map(normal_line, listing.instructions))
