"""The records: a file for each GPU and op, from which plots and pages are made."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compare import repository
from compare.errors import UnavailableError, UsageError
from compare.judge.parity import Skipped
from compare.parameters import read_ops
from compare.timing.names import NAMES
from compare.timing.times import (
    Bench,
    CaseTimes,
    Document,
    Kept,
    Timing,
    from_json,
    to_json,
)

FOLDER = repository.RECORDS


def write(kept: Document, folder: Path = FOLDER) -> Path:
    """Keeps it, in place of what was kept of this kind, op and GPU.

    Raises:
        UnavailableError: The file cannot be written.
    """
    file = file_of(kept, folder)
    text = json.dumps(to_json(kept), indent=1, allow_nan=False) + "\n"
    replace(file, text.encode())
    return file


def read(file: Path, made: type[Kept]) -> Kept:
    """The document of a class in a file, of the records or of `compare bench --json`.

    Raises:
        UsageError: It is not there, or keeps something else.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror})") from error
    try:
        kept = from_json(json.loads(content), made)
        if missing := {"date", "gpus"} - kept.environment.keys():
            raise ValueError(f"its environment lacks {min(missing)!r}")
        if not kept.environment["gpus"]:
            raise ValueError("it names no GPU")
        if isinstance(kept, Bench) and (unknown := _implementations(kept) - {*NAMES}):
            raise ValueError(f"it times {min(unknown)!r}, which is unknown here")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        lack = "it lacks " if isinstance(error, KeyError) else ""
        raise UsageError(
            f"{file} holds no {made.KIND or 'bench'} as compare writes it: "
            f"{lack}{error}"
        ) from error
    return kept


def read_all(made: type[Kept], folder: Path = FOLDER) -> list[Kept]:
    """All records of a class, by GPU and op."""
    kept = (read(file, made) for file in folder.glob(f"*/{made.KIND}/*.json"))
    return sorted(kept, key=lambda each: (gpu(each), each.op))


def find(op: str, made: type[Kept], folder: Path = FOLDER) -> Kept | None:
    """An op's record of a class: of the GPU that has most records, then the newest."""

    def rank(kept: Kept) -> tuple[int, str]:
        of_its_gpu = folder_of(gpu(kept), folder).rglob("*.json")
        return len([*of_its_gpu]), str(kept.environment["date"])

    kept = (read(file, made) for file in folder.glob(f"*/{made.KIND}/{op}.json"))
    return max(kept, key=rank, default=None)


def choose(
    ops: Sequence[str], source: str | None, folder: Path = FOLDER
) -> list[Bench]:
    """The benches that a command line asks for, one of each op.

    Args:
        ops: By default all of which a sweep is recorded.
        source: A file to take instead of the records.
        folder: Where the records are.

    Raises:
        UsageError: There is no such thing.
    """
    if source is not None:
        bench = read(Path(source), Bench)
        if ops and list(ops) != [bench.op]:
            raise UsageError(f"{source} is of {bench.op}, not of {', '.join(ops)}")
        return [bench]
    recorded = sorted({file.stem for file in folder.glob("*/*.json")})
    if not recorded:
        raise UsageError(
            "nothing is recorded yet: python -m compare record measures on a GPU"
        )
    if unknown := [op for op in ops if op not in recorded]:
        raise UsageError(
            f"there is no record of {unknown[0]}, only of {', '.join(recorded)}"
        )
    found = (find(op, Bench, folder) for op in dict.fromkeys(ops or recorded))
    return [bench for bench in found if bench and (ops or bench.sweep)]


def gpu(kept: Document) -> str:
    """The name of the GPU that it was measured on."""
    return str(kept.environment["gpus"][0])


def date(kept: Document) -> str:
    """The day that it was measured on, such as 2026-11-20."""
    return str(kept.environment["date"])[:10]


def folder_of(gpu_name: str, folder: Path = FOLDER) -> Path:
    """Where the records of a GPU are, such as records/nvidia-h200."""
    return folder / re.sub(r"[^a-z0-9]+", "-", gpu_name.lower()).strip("-")


def file_of(kept: Document, folder: Path = FOLDER) -> Path:
    """Where it is kept, such as records/nvidia-h200/softmax.json."""
    return folder_of(gpu(kept), folder) / kept.KIND / f"{kept.op}.json"


def unusual_params(op: str, params: Mapping[str, Any]) -> tuple[str, ...]:
    """The parameters of an op that have not their default, such as "dim=0"."""
    known = read_ops()[op].parameters if op in read_ops() else {}
    return tuple(
        f"{name}={value}"
        for name, value in sorted(params.items())
        if name not in known or known[name].default != value
    )


def timing(times: CaseTimes, implementation: str) -> Timing | None:
    """How long it took; None where it was not timed."""
    found = times.timings.get(implementation)
    return None if isinstance(found, Skipped) else found


def replace(file: Path, content: bytes) -> None:
    """Writes a file, all of it or nothing.

    Raises:
        UnavailableError: It cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".new-") as folder:
            new = Path(folder, file.name)
            new.write_bytes(content)
            os.replace(new, file)
    except OSError as error:
        problem = f"{file} cannot be written ({error.strerror})"
        raise UnavailableError(problem) from error


def _implementations(bench: Bench) -> set[str]:
    cases = (*bench.cases, *bench.sweep)
    return {*bench.start, *bench.notes}.union(*(each.timings for each in cases))
