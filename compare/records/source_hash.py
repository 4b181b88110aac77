"""A hash of the sources that an op's kernels are made from, which its records carry.

The CUDA side's covers csrc/<op>, every file of csrc that is included there, directly or
not, and nvcc's flags; Triton's covers triton_kernels/<op> and every module of
triton_kernels that is imported there. The emulator runs on no GPU and does not count.
Comments, docstrings and blank lines do not count either, nor does C++'s indentation: an
edited sentence changes nothing that was measured.

An op and its backward share a folder, and so a hash. Nothing here imports torch, which
takes seconds.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from compare.repository import ROOT

SIDES = ("cuda", "triton")

# The entry of a record's environment that holds the hashes.
KEY = "sources"

_CUDA_SUFFIXES = {".cu", ".cuh", ".h"}
_CUDA_TOKEN = re.compile(
    r"""
    (?:u8|[uUL])?R"(?P<mark>[^\s()\\]*)\(.*?\)(?P=mark)"
  | "(?:\\.|[^"\\])*"
  | '(?:\\.|[^'\\])*'
  | \.?\d(?:'?\w|\.)*  # a number, whose ' separates digits
  | \w+
  | (?P<gap>(?:\s|\\\n|//(?:\\\n|[^\n])*|/\*.*?\*/)+)
    """,
    re.DOTALL | re.VERBOSE,
)
# The parts of a gap that end no line, and so no directive of the preprocessor.
_WITHIN_A_LINE = re.compile(r"//(?:\\\n|[^\n])*|/\*.*?\*/|\\\n", re.DOTALL)
_INCLUDE = re.compile(r'^# ?include ["<]([^">]+)[">]', re.MULTILINE)
_PLAIN_STRING = re.compile(r"""[rRuUbB]*["']""")  # unlike an f-string, which computes
_LINE_TOKENS = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def hashes(*ops: str, root: Path = ROOT) -> dict[str, str]:
    """The hash of what ops are made from, by side: sixteen digits.

    A side is missing if an op has no sources there.

    Raises:
        SyntaxError: A module of Triton's side is no Python.
    """
    root = root.resolve()
    folders = [_folder(op, root) for op in ops]
    found = {}
    for side, files_of, kept_of in (
        ("cuda", _cuda_files, _kept_of_cuda),
        ("triton", _triton_files, _kept_of_python),
    ):
        by_op = [files_of(root, folder) if folder else set() for folder in folders]
        if not all(by_op):
            continue
        digest = hashlib.sha256(_nvcc_flags(root).encode() if side == "cuda" else b"")
        for path in sorted(set().union(*by_op)):
            name = path.relative_to(root).as_posix()
            digest.update(f"\0{name}\0{kept_of(path.read_text('utf-8'))}".encode())
        found[side] = digest.hexdigest()[:16]
    return found


def older_sides(
    environment: Mapping[str, Any], *ops: str, root: Path = ROOT
) -> tuple[str, ...]:
    """The sides of a record that are of older code; those without a hash count as such.

    Args:
        environment: The record's.
        ops: What it is of.
        root: The checkout.
    """
    recorded = environment.get(KEY)
    if not isinstance(recorded, Mapping):
        return SIDES
    current = hashes(*ops, root=root)
    return tuple(
        side
        for side in SIDES
        if side not in current or recorded.get(side) != current[side]
    )


def _folder(op: str, root: Path) -> str | None:
    """The folder of an op, which a backward shares; None of what is no op."""
    if not op.isidentifier():  # a record may hold any text, also a path
        return None
    names = (op, op.removesuffix("_backward"))
    return next((name for name in names if (root / "csrc" / name).is_dir()), None)


def _reachable(
    files: Iterable[Path], next_of: Callable[[Path], Iterable[Path]]
) -> set[Path]:
    found: set[Path] = set()
    todo = list(files)
    while todo:
        if (path := todo.pop()) not in found:
            found.add(path)
            todo += next_of(path)
    return found


# ---- CUDA ----------------------------------------------------------------------------


def _cuda_files(root: Path, folder: str) -> set[Path]:
    csrc = root / "csrc"

    def counts(path: Path) -> bool:
        return path.is_relative_to(csrc) and not path.is_relative_to(csrc / "emulator")

    def included(path: Path) -> Iterator[Path]:
        for name in _INCLUDE.findall(_kept_of_cuda(path.read_text("utf-8"))):
            places = ((base / name).resolve() for base in (path.parent, csrc))
            # A file that is found nowhere is a header of CUDA, C++ or the emulator.
            if (file := next(filter(Path.is_file, places), None)) and counts(file):
                yield file

    own = (csrc / folder).rglob("*")
    return _reachable((each for each in own if each.suffix in _CUDA_SUFFIXES), included)


def _nvcc_flags(root: Path) -> str:
    """From the source, because importing bindings imports torch."""
    path = root / "bindings/sources.py"
    for node in ast.parse(path.read_text("utf-8"), str(path)).body:
        match node:
            case ast.Assign(targets=[ast.Name("NVCC_FLAGS")], value=flags):
                return repr(ast.literal_eval(flags))
    raise ValueError(f"{path} assigns no NVCC_FLAGS")


@functools.cache
def _kept_of_cuda(text: str) -> str:
    """A source without comments, every gap a space or a line break."""

    def shrink(found: re.Match[str]) -> str:
        if (gap := found["gap"]) is None:
            return found[0]
        return "\n" if "\n" in _WITHIN_A_LINE.sub("", gap) else " "

    return _CUDA_TOKEN.sub(shrink, text).strip()


# ---- Triton --------------------------------------------------------------------------


def _triton_files(root: Path, folder: str) -> set[Path]:
    def imported(path: Path) -> Iterator[Path]:
        for name in _imports(
            path.read_text("utf-8"), path.relative_to(root).as_posix()
        ):
            # A package comes before its modules, and runs when they are imported.
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                stem = root.joinpath(*parts[:end])
                yield from filter(
                    Path.is_file, (stem.with_suffix(".py"), stem / "__init__.py")
                )

    return _reachable((root / "triton_kernels" / folder).rglob("*.py"), imported)


@functools.cache
def _imports(text: str, file: str) -> tuple[str, ...]:
    """The names that a module imports from triton_kernels, with their modules."""
    found = []
    package = Path(file).parent.parts
    for node in ast.walk(ast.parse(text, file)):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join((*base, *filter(None, [node.module])))
            found += [f"{module}.{each.name}" for each in node.names]
    return tuple(each for each in found if each.split(".")[0] == "triton_kernels")


@functools.cache
def _kept_of_python(text: str) -> str:
    """A module's tokens without comments and docstrings, the same in every Python."""
    kept: list[tuple[int, str]] = []
    for kind, string in _python_tokens(text):
        if kind == tokenize.NEWLINE and kept and _is_docstring(kept):
            kept.pop()
        else:
            kept.append((kind, string))
    return "\0".join(
        tokenize.tok_name[kind] if kind in _LINE_TOKENS else string
        for kind, string in kept
    )


def _is_docstring(kept: list[tuple[int, str]]) -> bool:
    """Whether the line so far is nothing but a string."""
    *before, (_, last) = kept
    is_first = not before or before[-1][0] in _LINE_TOKENS
    return is_first and _PLAIN_STRING.match(last) is not None


def _python_tokens(text: str) -> Iterator[tuple[int, str]]:
    """The tokens that matter; f-strings are one each, as before Python 3.12."""
    lines = io.StringIO(text).readlines()
    opening = getattr(tokenize, "FSTRING_START", None)
    closing = getattr(tokenize, "FSTRING_END", None)
    depth = 0
    for each in tokenize.generate_tokens(io.StringIO(text).readline):
        if each.type == opening:
            depth += 1
            if depth == 1:
                start = each.start
        elif each.type == closing:
            depth -= 1
            if depth == 0:
                yield tokenize.STRING, _between(lines, start, each.end)
        elif not depth and each.type not in (tokenize.COMMENT, tokenize.NL):
            yield each.type, each.string


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """The text from one place to another, as tokenize counts: lines from 1."""
    *whole, last = lines[start[0] - 1 : end[0]]
    return "".join((*whole, last[: end[1]]))[start[1] :]
