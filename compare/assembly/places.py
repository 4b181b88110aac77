"""Where an instruction comes from, in the project's own sources."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path, PurePath

from bindings.sources import ROOT
from compare.assembly.listing import Instruction

# By side: the folder, the files' suffixes, and the pattern of a kernel's definition.
_LANGUAGES = {
    "cuda": ("csrc", (".cu", ".cuh"), r"__global__[^;{{}}]*\b{}\("),
    "triton": ("triton_kernels", (".py",), r"(?m)^def {}\("),
}

# What the files of own pairs are called in places, by their absolute paths.
_registered: dict[str, str] = {}


def register(path: Path, shown: str) -> None:
    """Makes a file one of the project's: places in it are "mine.cu:12".

    Args:
        path: The file, anywhere.
        shown: What it is called; `distinct_names` gives names that tell files apart.
    """
    # A compiler may name it by either.
    _registered[str(path.absolute())] = _registered[str(path.resolve())] = shown
    project_file.cache_clear()


def distinct_names(paths: Iterable[Path]) -> dict[Path, str]:
    """The shortest ends of paths that tell them apart: "a/mine.cu" and "b/mine.cu"."""
    parts = {path: path.resolve().parts[1:] for path in paths}

    def name(path: Path) -> str:
        own = parts[path]
        others = {each for each in parts.values() if each != own}
        for n in range(1, len(own)):
            if not any(each[-n:] == own[-n:] for each in others):
                return "/".join(own[-n:])
        return "/".join(own)

    return {path: name(path) for path in parts}


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
            if file and not (without and _is_in(file, without)):
                found.add((file, frame.line))
                break
    return tuple(f"{path}:{line}" for path, line in sorted(found))


def _is_in(file: str, folder: str) -> bool:
    """Whether a file is the project's own, in this folder of one of the sides."""
    is_own = file not in _registered.values()
    return is_own and file.split("/")[1] == folder


def in_op(instructions: Iterable[Instruction]) -> tuple[str, ...]:
    """The line of the op's own folder, or of a registered file, of each."""
    return in_sources(instructions, without="common")


@functools.cache
def project_file(path: str) -> str:
    """A path as it is below the project, or as it was registered; else empty."""
    if path in _registered:
        return _registered[path]
    # Not by its beginning: Triton's cache knows kernels by their text, and gives code
    # that names the folder in which another copy of the project was compiled.
    parts = PurePath(path).parts
    for index in range(len(parts) - 1, -1, -1):
        if parts[index] in ("csrc", "triton_kernels"):
            file = "/".join(parts[index:])
            if (ROOT / file).is_file():
                return file
    return ""
