"""Where an instruction comes from, in the project's own sources."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import PurePath

from bindings.sources import ROOT
from compare.assembly.listing import Instruction

# By side: the folder, the files' suffixes, and the pattern of a kernel's definition.
_LANGUAGES = {
    "cuda": ("csrc", (".cu", ".cuh"), r"__global__[^;{{}}]*\b{}\("),
    "triton": ("triton_kernels", (".py",), r"(?m)^def {}\("),
}


@functools.cache
def file_of(side: str, source: str, kernel: str) -> str:
    """The file that a kernel stands in: "csrc/softmax/twin.cuh".

    Args:
        side: "cuda" or "triton".
        source: The folder of the op that launches it, which is looked at first.
        kernel: The kernel's name.

    Raises:
        LookupError: It stands in no file.
    """
    folder, suffixes, definition = _LANGUAGES[side]
    files = [e for e in (ROOT / folder).rglob("*") if e.suffix in suffixes]
    files.sort(key=lambda path: (path.parent.name != source, path))
    for path in files:
        text = path.read_text(encoding="utf-8")
        if kernel in text and re.search(definition.format(kernel), text):
            return path.relative_to(ROOT).as_posix()
    raise LookupError(f"{kernel} stands in no file of {folder}")


def in_sources(
    instructions: Iterable[Instruction], *, without: str = ""
) -> tuple[str, ...]:
    """The innermost line of each in the project's kernels: "csrc/common/vec.cuh:41".

    Args:
        instructions: Of either side.
        without: The folder whose lines do not count.
    """
    found = set()
    for instruction in instructions:
        for frame in instruction.frames:
            file = project_file(frame.file)
            if file and file.split("/")[1] != without:
                found.add((file, frame.line))
                break
    return tuple(f"{path}:{line}" for path, line in sorted(found))


def in_op(instructions: Iterable[Instruction]) -> tuple[str, ...]:
    """The line of the op's own folder that each comes from."""
    return in_sources(instructions, without="common")


@functools.cache
def project_file(path: str) -> str:
    """A path as it is below the project; empty if it is another's."""
    # Not by its beginning: Triton's cache knows kernels by their text, and gives code
    # that names the folder in which another copy of the project was compiled.
    parts = PurePath(path).parts
    for index in range(len(parts) - 1, -1, -1):
        if parts[index] in ("csrc", "triton_kernels"):
            file = "/".join(parts[index:])
            if (ROOT / file).is_file():
                return file
    return ""
