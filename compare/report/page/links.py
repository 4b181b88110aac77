"""Links between source lines, sections of the two sources, and instructions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from bindings.registry import OPS
from bindings.sources import ROOT
from compare.assembly.listing import Frame, Instruction
from compare.assembly.places import file_of, project_file
from compare.code.kernel_code import Side
from compare.report.comparison import Report
from compare.report.own_pair import OwnPair
from compare.report.page.definitions import cuda_lines, python_lines

# By side, the files that a kernel may be in whose name is not known.
_FILES: dict[Side, tuple[str, ...]] = {
    "cuda": ("csrc/{0}/twin.cuh", "csrc/{0}/{0}.cu"),
    "triton": ("triton_kernels/{0}/twin.py", "triton_kernels/{0}/{0}.py"),
}
# By language, what finds the lines of a kernel.
_LINES: dict[Side, Callable[[str, str], range | None]] = {
    "cuda": cuda_lines,
    "triton": python_lines,
}
_FOLDERS: dict[Side, str] = {"cuda": "csrc/", "triton": "triton_kernels/"}
_SECTION = re.compile(r"(?://|#) -- (\w+)")


@dataclass(frozen=True)
class Kernel:
    """Where a kernel stands."""

    file: str  # such as "csrc/softmax/twin.cuh"
    lines: range  # from the template or the decorator in front on
    sections: dict[str, range]  # in order
    # Those in functions beside it, which warps run that are specialized in a part of
    # the work: they are not inlined into the kernel.
    workers: tuple[tuple[str, range], ...] = ()


@dataclass(frozen=True)
class Chain:
    """An instruction's place in the sources, through all inlined functions."""

    # From the innermost inlined function outwards, such as "csrc/common/vec.cuh:41"; a
    # file that the page does not show has no folder.
    places: tuple[str, ...]
    is_foreign: bool  # whether the innermost place is in a file of CUDA or Triton
    section: str  # empty if it is in none
    line: str  # of the kernel's own file; empty if it is from none
    origin: str  # where it was inlined from: "vec.cuh:41"


def find_kernel(side: Side, op: str, name: str) -> Kernel:
    """Looks a kernel up; one without a name has no lines.

    Raises:
        LookupError: It stands in no file.
    """
    source = OPS[op].source
    if not name:
        files = [each.format(source) for each in _FILES[side]]
        file = next(each for each in files if (ROOT / each).exists())
        return Kernel(file, range(1, 1), {})
    file = file_of(side, source, name)
    text = read_source(file)
    lines = _LINES[side](text, name)
    assert lines, name  # file_of has found it there
    return Kernel(file, lines, _sections(text, lines), _workers(side, text, lines))


def kernel_of(report: Report, side: Side, name: str) -> Kernel:
    """The kernel of this name in the sources of a report.

    A kernel of own files that is not found, as when a macro makes it, is all of the
    main file.

    Raises:
        LookupError: A kernel of an op stands in no file.
    """
    if report.own:
        return _find_own(report.own, side, name)
    return find_kernel(side, report.op, name)


def _find_own(own: OwnPair, side: Side, name: str) -> Kernel:
    main = own.files[side]
    name = name.rpartition("::")[2]
    mains = {*own.files.values()}  # what it includes is none of them
    for file in (main, *(each for each in own.texts if each not in mains)):
        text = own.texts[file]
        if name and (lines := _LINES[own.languages[side]](text, name)):
            return Kernel(file, lines, _sections(text, lines))
    text = own.texts[main]
    whole = range(1, len(text.splitlines()) + 1)
    return Kernel(main, whole, _sections(text, whole))


def _sections(text: str, lines: range) -> dict[str, range]:
    """The sections that are marked in these lines."""
    marks = [
        (found[1], number)
        for number, line in enumerate(text.split("\n"), start=1)
        if number in lines and (found := _SECTION.search(line))
    ]
    # Each ends where the next begins, and the last with the lines.
    ends = [*(number for _, number in marks), lines.stop][1:]
    return {
        section: range(start, end)
        for (section, start), end in zip(marks, ends, strict=True)
    }


def _workers(side: Side, text: str, lines: range) -> tuple[tuple[str, range], ...]:
    """The sections in Python functions outside of these lines."""
    if side != "triton":
        return ()
    functions = re.findall(r"^def (\w+)", text, re.M)
    ranges = (python_lines(text, each) for each in functions)
    others = (each for each in ranges if each and each.start not in lines)
    return tuple(part for each in others for part in _sections(text, each).items())


def source_files(
    report: Report, side: Side, kernel: Kernel, instructions: Iterable[Instruction]
) -> tuple[str, ...]:
    """The kernel's file, then the others of the project that instructions are from.

    Of own files the main one is always among them.
    """
    frames = {frame.file for each in instructions for frame in each.frames}
    found = {*map(project_file, frames)}
    # Own files may import the project's.
    folders = tuple(_FOLDERS.values()) if report.own else _FOLDERS[side]
    own = report.own.texts if report.own else ()
    found = {file for file in found if file in own or file.startswith(folders)}
    if report.own:
        found.add(report.own.files[side])
    return (kernel.file, *sorted(found - {kernel.file}))


def source_of(report: Report, file: str) -> str:
    """The text of a file that a report is about."""
    if report.own and file in report.own.texts:
        return report.own.texts[file]
    return read_source(file)


def read_source(file: str) -> str:
    """The text of a file of the project."""
    return (ROOT / file).read_text(encoding="utf-8")


class Chains:
    """The chains of one side's instructions, each kept once."""

    def __init__(self, kernel: Kernel, texts: Mapping[str, str]) -> None:
        """Starts empty, with the texts of the files that the page shows."""
        self._kernel = kernel
        self._lengths = {file: text.count("\n") for file, text in texts.items()}
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
        places = [(self._shown_file(frame), frame) for frame in frames]
        shown = [(file, frame.line) for file, frame in places if file]
        own = [line for file, line in shown if file == self._kernel.file]
        sections = (
            section
            for line in own
            for section, lines in (
                *self._kernel.sections.items(),
                *self._kernel.workers,
            )
            if line in lines
        )
        inlined = [each for each in shown[:1] if each[0] != self._kernel.file]
        return Chain(
            places=tuple(
                f"{file or PurePath(frame.file).name}:{frame.line}"
                for file, frame in places
            ),
            is_foreign=not any(file for file, _ in places[:1]),
            section=next(sections, ""),
            line=str(own[0]) if own else "",
            origin="".join(f"{PurePath(file).name}:{line}" for file, line in inlined),
        )

    def _shown_file(self, frame: Frame) -> str:
        file = project_file(frame.file)
        return file if frame.line <= self._lengths.get(file, 0) else ""
