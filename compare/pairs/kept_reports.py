"""Reports in which nothing was wrong, kept on disk until one of the files changes."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from bindings.sources import EMULATOR, ROOT
from compare.code import cache
from compare.code.kernel_code import KernelCode
from compare.pairs import question
from compare.pairs.own_report import OwnReport
from compare.pairs.question import Problem

# What a user's file may import or include, from its own folder or one below.
_SUFFIXES = {".py", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".yml"}
# In a folder with more, such as a home, nobody knows what belongs together.
_MOST_FILES = 300
# Versions on which a report depends, in its environment.
_VERSIONS = ("python", "torch", "triton", "numpy", "nvcc", "gpus")
# By these calls Python depends on any file; tl.load and a descriptor's load are none.
_READS_A_FILE = re.compile(
    r"(?<![\w.])(?:load|open)\s*\("
    r"|\b(?:torch|np|numpy|pickle|json)\.load\w*\s*\("
    r"|\.(?:open|loadtxt|fromfile|from_file|read_text|read_bytes)\s*\("
)


def key_of(
    asked: str,
    problem: Problem | None,
    paths: Sequence[Path],
    environment: Mapping[str, object],
) -> str | None:
    """The name of a report; None if it cannot be told what it depends on.

    Args:
        asked: All that the user has asked for.
        problem: Where inputs and reference come from.
        paths: The files of the user's that are compared, and what they include.
        environment: From compare.timing.environment.

    Raises:
        CompareError: The problem's files cannot be told.
    """
    named = {path.resolve() for path in paths}
    texts: list[str] = []
    if problem:
        named.update(question.files_of(problem))
        texts += [problem.inputs, problem.reference]
    texts += [_text(path) for path in sorted(named) if path.suffix == ".py"]
    if any(map(_READS_A_FILE.search, texts)):
        return None
    facts: list[str | bytes] = [asked, f"in {Path.cwd()}"]
    facts += [f"{name} {environment[name]}" for name in _VERSIONS]
    beside = {*islice(_beside(named), _MOST_FILES + 1)}
    if len(beside) > _MOST_FILES:
        return None
    try:
        for path in (*sorted(named | beside), *_own_sources()):
            facts += [str(path), path.read_bytes()]
    except OSError:  # a file that may not be read, or is no more
        return None
    return cache.key_of(*facts)


def _beside(named: Iterable[Path]) -> Iterator[Path]:
    """The files in the folders of these files, and below, that may belong to them."""
    for top in {path.parent for path in named}:
        for folder, below, names in os.walk(top):
            below[:] = [e for e in below if e[0] != "." and e != "__pycache__"]
            for name in names:
                path = Path(folder, name)
                if path.suffix in _SUFFIXES and path.is_file():
                    yield path


def _text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace") if path.is_file() else ""


def _own_sources() -> Iterator[Path]:
    """The project's files that a report is made by."""
    for folder in (ROOT / "bindings", ROOT / "compare"):
        yield from sorted(folder.rglob("*.py"))
    yield from sorted(e for e in EMULATOR.rglob("*") if e.suffix in (".h", ".cpp"))


def find(key: str) -> OwnReport | None:
    """The report of this name, if it is there; its files have to be registered."""
    stored = cache.read(key, ("report",))
    if stored is None:
        return None
    report: OwnReport = pickle.loads(stored["report"])  # of the user's own folder
    when = str(report.environment["date"])[:16].replace("T", " ")
    note = f"found at {when} UTC; the files have not changed since"
    return replace(report, notes=(*report.notes, note))


def keep(key: str, report: OwnReport) -> None:
    """Keeps a report, with what is computed for it when it is shown."""
    for code in report.codegen.values():
        if isinstance(code, KernelCode):
            _ = code.simulation, code.occupancy, code.ptx_mix, code.sass_mix
    cache.write(key, {"report": pickle.dumps(report)})
