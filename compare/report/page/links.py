"""Links between source lines, sections of the two sources, and instructions."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from bindings.registry import OPS
from bindings.sources import ROOT
from compare.assembly.listing import Frame, Instruction
from compare.assembly.places import file_of
from compare.code.kernel_code import Side

_FOLDERS: dict[Side, str] = {"cuda": "csrc", "triton": "triton_kernels"}
_SUFFIXES: dict[Side, str] = {"cuda": ".cu", "triton": ".py"}
_SECTION = re.compile(r"(?://|#) -- (\w+)")


@dataclass(frozen=True)
class Kernel:
    """Where a kernel stands in the file of its op.

    Attributes:
        lines: All of it, the template or the decorator in front included.
        sections: Their lines, by name, in order.
    """

    lines: range
    sections: dict[str, range]


@dataclass(frozen=True)
class Chain:
    """An instruction's place in the sources, through all inlined functions.

    Attributes:
        places: From the innermost inlined function outwards, such as
            "csrc/common/vec.cuh:41"; a file that the page does not show has no folder.
        is_foreign: Whether the innermost place is in a file of CUDA or Triton.
        section: Of the kernel; empty if it is in none.
    """

    places: tuple[str, ...]
    is_foreign: bool
    section: str


def main_file(side: Side, op: str, kernel: str) -> str:
    """The file that a kernel is in: "csrc/softmax/twin.cuh"; the twin's without one."""
    source = OPS[op].source
    if not kernel:
        suffix = {"cuda": ".cuh", "triton": ".py"}[side]
        twin = f"{_FOLDERS[side]}/{source}/twin{suffix}"
        own = f"{_FOLDERS[side]}/{source}/{source}{_SUFFIXES[side]}"
        return twin if (ROOT / twin).exists() else own
    return file_of(side, source, kernel)


def source_files(
    side: Side, main: str, instructions: Iterable[Instruction]
) -> tuple[str, ...]:
    """The kernel's file, then the others of the project that instructions are from."""
    frames = {frame.file for each in instructions for frame in each.frames}
    found = {_project_file(side, file) for file in frames}
    return (main, *sorted(file for file in found if file and file != main))


def read_source(file: str) -> str:
    """The text of a file of the project."""
    return (ROOT / file).read_text(encoding="utf-8")


def find_kernel(side: Side, text: str, name: str) -> Kernel | None:
    """Looks a kernel up in the text of its op's file."""
    lines = (_triton_lines if side == "triton" else _cuda_lines)(text, name)
    if lines is None:
        return None
    marks = [
        (found[1], number)
        for number, line in enumerate(text.split("\n"), start=1)
        if number in lines and (found := _SECTION.search(line))
    ]
    ends = [*(number for _, number in marks[1:]), lines.stop]
    sections = {
        section: range(start, end)
        for (section, start), end in zip(marks, ends, strict=True)
    }
    return Kernel(lines, sections)


def _triton_lines(text: str, name: str) -> range | None:
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            return range(first, (node.end_lineno or first) + 1)
    return None


def _cuda_lines(text: str, name: str) -> range | None:
    found = re.search(
        rf"^(?:template[^;{{}}]*)?__global__[^;{{}}]*\b{name}\(.*?^}}$",
        text,
        re.DOTALL | re.MULTILINE,
    )
    if found is None:
        return None
    first, last = (text.count("\n", 0, place) + 1 for place in found.span())
    return range(first, last + 1)


class Chains:
    """The chains of one side's instructions, each kept once."""

    def __init__(
        self, side: Side, main: str, texts: Mapping[str, str], kernel: Kernel | None
    ) -> None:
        """Starts without any, of a kernel in a main file; the page shows the texts."""
        self._side = side
        self._main = main
        self._lengths = {file: text.count("\n") for file, text in texts.items()}
        self._sections = kernel.sections if kernel else {}
        self._numbers: dict[tuple[Frame, ...], int] = {}
        self.all: list[Chain] = []

    def number_of(self, instruction: Instruction) -> int:
        """The place of an instruction's chain in `all`."""
        frames = instruction.frames
        if frames not in self._numbers:
            self._numbers[frames] = len(self.all)
            self.all.append(self._chain(frames))
        return self._numbers[frames]

    def of(self, instruction: Instruction) -> Chain:
        """An instruction's chain."""
        return self.all[self.number_of(instruction)]

    def counts(self, instructions: Sequence[Instruction]) -> Counter[str]:
        """How many of the instructions each place has."""
        return Counter(
            place for each in instructions for place in {*self.of(each).places}
        )

    def _chain(self, frames: tuple[Frame, ...]) -> Chain:
        files = [self._shown_file(frame) for frame in frames]
        pairs = [*zip(files, frames, strict=True)]
        sections = (
            section
            for file, frame in pairs
            for section, lines in self._sections.items()
            if file == self._main and frame.line in lines
        )
        return Chain(
            places=tuple(
                f"{file or PurePath(frame.file).name}:{frame.line}"
                for file, frame in pairs
            ),
            is_foreign=not any(files[:1]),
            section=next(sections, ""),
        )

    def _shown_file(self, frame: Frame) -> str | None:
        file = _project_file(self._side, frame.file)
        return file if file and frame.line <= self._lengths.get(file, 0) else None


@functools.cache
def _project_file(side: Side, path: str) -> str | None:
    """A path as it is in this project, or None if it is not of this project.

    Compilers' caches know a file by its content, so the path may be in another copy of
    the project, which the code was first compiled in.
    """
    parts = Path(path).parts
    for start in range(len(parts) - 1, -1, -1):
        if parts[start] == _FOLDERS[side]:
            file = "/".join(parts[start:])
            return file if (ROOT / file).is_file() else None
    return None
