"""What a word on the command line names: a function in a file of the user's."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from compare.code.kernel_code import Side
from compare.errors import UsageError
from compare.pairs import CUDA_SUFFIXES, gpu_mode, kernelbench, python_file

_PROGRAM_FILES = (".cu", ".py")  # those of a folder that are tried


@dataclass(frozen=True)
class Entry:
    """A function in a file.

    Attributes:
        path: The file, or gpu-mode's folder.
        name: Of the function; empty for the only one that launches kernels.
        style: "file", or "kernelbench" or "gpu-mode" for a solution of that form.
    """

    path: Path
    name: str = ""
    style: str = "file"

    @property
    def language(self) -> Side:
        """What its kernels are written in; CUDA may stand in a string of a .py file.

        Raises:
            BuildFailedError: That file is no Python, or cannot be read.
            UnavailableError: It puts the CUDA together while it runs.
        """
        if self.style == "file":
            return "cuda" if self.path.suffix in CUDA_SUFFIXES else "triton"
        python_file.parse(self.path)  # says in words what is wrong with the file
        return "cuda" if kernelbench.inline_sources(self.path) else "triton"


@dataclass(frozen=True)
class Description:
    """A file that says what to compare, and what to call it with.

    Attributes:
        path: The file.
        entries: What it names as `cuda` and as `triton`.
        has_launch: Whether it has a function `launch`.
    """

    path: Path
    entries: tuple[Entry, ...]
    has_launch: bool


def parse(text: str, folder: Path = Path()) -> Entry:
    """An entry such as "mine.cu:softmax<float>", below a folder.

    Raises:
        UsageError: There is no such file, or it is of no kind that is known.
    """
    file, _, name = text.partition(":")
    path = folder / file
    if not path.exists():
        raise UsageError(f"there is no file {file}")
    if gpu_mode.is_folder(path):
        return Entry(path, name, "gpu-mode")
    if path.is_dir():
        raise UsageError(f"{file} is a folder with no reference.py and submission.py")
    if path.suffix not in (*CUDA_SUFFIXES, ".py"):
        raise UsageError(f"{file} is neither a .cu nor a .py file")
    if path.suffix == ".py" and not name and kernelbench.is_solution(path):
        return Entry(path, name, "kernelbench")
    return Entry(path, name)


def files_in(folder: Path) -> list[Path]:
    """The files of a folder that may hold kernels, by name."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix in _PROGRAM_FILES and path.is_file()
    )


def read_description(path: Path) -> Description | None:
    """What a .py file describes; None if it describes nothing.

    Raises:
        BuildFailedError: It is no Python.
        UsageError: What it names is not there.
    """
    if path.suffix != ".py" or not path.is_file():
        return None
    names: dict[str, str] = {}
    functions = set()
    for node in _statements(path):
        if isinstance(node, ast.FunctionDef):
            functions.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name) and isinstance(node.value.value, str):
                    names[target.id] = node.value.value
    found = [names[each] for each in ("cuda", "triton") if each in names]
    if not found:
        if "inputs" in functions and not launches_kernels(path):
            raise UsageError(
                f"{path.name} has inputs(), but names neither side, as in "
                "cuda = 'mine.cu:function' or triton = 'mine.py:function'"
            )
        return None
    if "inputs" not in functions:
        raise UsageError(f"{path.name} describes a pair, but has no function inputs()")
    entries = tuple(_parse_in(path, text) for text in found)
    return Description(path, entries, "launch" in functions)


def launches_kernels(path: Path) -> bool:
    """Whether a .py file has Triton kernels, or launches some.

    Raises:
        BuildFailedError: It is no Python.
    """
    return python_file.has_kernels(path) or bool(python_file.entry_points(path))


def _parse_in(description: Path, text: str) -> Entry:
    try:
        return parse(text, description.parent)
    except UsageError as error:
        raise UsageError(f"{description.name}: {error}") from error


def has_function(path: Path, name: str) -> bool:
    """Whether a .py file defines a function of this name at its top level."""
    return path.suffix == ".py" and any(
        isinstance(each, ast.FunctionDef) and each.name == name
        for each in _statements(path)
    )


def _statements(path: Path) -> list[ast.stmt]:
    return python_file.parse(path).body
