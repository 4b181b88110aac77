"""`compare record --check`: which records are of the code that is there.

Nothing here imports torch, which takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from compare import repository
from compare.errors import UsageError
from compare.printable import printable
from compare.records.source_hash import SIDES, older_sides

SCHEMA_VERSION = 1

_HEAD = ("op", "GPU", "date", "commit", "CUDA", "Triton")


@dataclass(frozen=True)
class Checked:
    """A record."""

    file: str  # seen from the folder of the records
    kind: str  # "times", or what else was measured: the name of its folder
    ops: tuple[str, ...]  # empty if it does not say
    gpu: str
    date: str  # the day
    commit: str | None  # that it was made from; None if there was no git
    has_commit: bool | None  # in this repository; None where nobody can tell
    older: tuple[str, ...]  # the sides whose sources have changed since


def check(
    ops: Sequence[str] = (),
    folder: Path = repository.RECORDS,
    root: Path = repository.ROOT,
) -> list[Checked]:
    """All records, or those of some ops, by GPU, op and kind.

    Raises:
        UsageError: There is none, or a file is something else.
    """
    files = [*folder.glob("*/*.json"), *folder.glob("*/*/*.json")]
    found = [_check(file, folder, root) for file in files]
    if not found:
        raise UsageError(
            "nothing is recorded yet: python -m compare record measures on a GPU"
        )
    for op in ops:
        if not any(op in each.ops for each in found):
            raise UsageError(f"there is no record of {op}")
    chosen = [each for each in found if not ops or {*ops} & {*each.ops}]
    return sorted(chosen, key=lambda each: (each.gpu, each.ops, each.kind != "times"))


def to_json(found: Sequence[Checked]) -> dict[str, Any]:
    """The records in plain values."""
    records = []
    for each in found:
        facts = {**asdict(each), "ops": list(each.ops)}
        older = facts.pop("older")
        facts["is_of_this_code"] = {side: side not in older for side in SIDES}
        records.append(facts)
    return {"schema_version": SCHEMA_VERSION, "records": records}


def text(found: Sequence[Checked]) -> str:
    """A line for each record, and then what is wrong with them."""
    rows = [_HEAD, *map(_row, found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    n_older = sum(bool(each.older) for each in found)
    lines += ["", f"{n_older} of {len(found)} are of older code"]
    if absent := [each for each in found if each.has_commit is False]:
        names = ", ".join(f"{each.commit} ({_name(each)})" for each in absent)
        lines.append(f"commits that are not in this repository: {names}")
    if any(each.commit and each.has_commit is None for each in found):
        lines.append("git cannot say here whether the repository has the commits")
    return printable("".join(f"{line}\n" for line in lines))


def _check(file: Path, folder: Path, root: Path) -> Checked:
    try:
        document = json.loads(file.read_bytes())
        environment = document["environment"]
        # Counts are of several ops; the oldest do not say of which.
        names = document.get("ops") or [document.get("op")]
        ops = tuple(map(str, filter(None, names)))
        commit = environment.get("commit")
        return Checked(
            file=file.relative_to(folder).as_posix(),
            kind=file.parent.name if file.parent.parent != folder else "times",
            ops=ops,
            gpu=str(environment["gpus"][0]),
            date=str(environment["date"])[:10],
            commit=commit,
            has_commit=repository.has_commit(commit) if commit else None,
            older=older_sides(environment, *ops, root=root) if ops else SIDES,
        )
    except KeyError as error:
        raise UsageError(f"{file} is no record: it lacks {error}") from error
    except (AttributeError, IndexError, OSError, TypeError, ValueError) as error:
        raise UsageError(f"{file} is no record: {error}") from error


def _name(each: Checked) -> str:
    ops = f"{len(each.ops)} ops" if len(each.ops) > 3 else ", ".join(each.ops)
    words = [ops, *([each.kind] if each.kind != "times" else [])]
    return " ".join(filter(None, words))


def _row(each: Checked) -> tuple[str, ...]:
    ages = (f"of {'older' if side in each.older else 'this'} code" for side in SIDES)
    return (_name(each), each.gpu, each.date, each.commit or "none", *ages)
