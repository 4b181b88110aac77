"""The process in which foreign code runs: does one task, under its watcher.

It is a fork of a process that has imported torch. The answer goes to a file in the
private folder, not to standard output, because foreign code prints.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import importlib
import os
import resource
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from compare.errors import CompareError
from compare.pairs import complaints, confine, exchange

_LARGEST_FILE_BYTES = 4 << 30
_MOST_OPEN_FILES = 1024


def main(folder: Path, plan: Mapping[str, Any]) -> None:
    """Does the task of a private folder, and ends the process."""
    pid = os.getpid()
    _limit_itself()
    # The watcher asks by SIGUSR1 where the code is that does not end.
    faults = (folder / "faults").open("w")
    faulthandler.enable(faults)
    faulthandler.register(signal.SIGUSR1, faults)
    _differ_from_other_forks(folder, plan)
    answer = _answer(plan, folder)
    # Foreign code may have forked, and both processes come here.
    if os.getpid() == pid:
        _write(answer, folder, plan["files"])
    # Threads and exit handlers of foreign code may never end.
    os._exit(0)


def _differ_from_other_forks(folder: Path, plan: Mapping[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(plan["environment"])
    sys.path[:] = [str(folder / "work"), *plan["path"]]
    importlib.invalidate_caches()
    # Otherwise all would draw the same numbers: what is random would agree by chance.
    # The module random sees to it itself.
    torch.default_generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _limit_itself() -> None:
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        # Python ignores SIGXFSZ: to write more raises OSError, in a line of the user's.
        (resource.RLIMIT_FSIZE, _LARGEST_FILE_BYTES),
        (resource.RLIMIT_NOFILE, _MOST_OPEN_FILES),
    ):
        _, hard = resource.getrlimit(kind)
        if hard == resource.RLIM_INFINITY or hard > limit:
            resource.setrlimit(kind, (limit, limit))
    # If the system runs out of memory, it ends this process rather than the user's.
    with contextlib.suppress(OSError):  # some containers do not let it be written
        Path("/proc/self/oom_score_adj").write_text("1000")


def _answer(plan: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    files = [Path(each) for each in plan["files"]]
    try:
        # Imported before the restriction: Python keeps compiled modules beside them.
        task = importlib.import_module(plan["task"])
        request = exchange.read(folder / "request")
        confine.restrict_processes()
        confine.restrict_writing([folder, *map(Path, plan["writable"])])
        answer = task.answer(request)
        if not isinstance(answer, Iterator):
            return {"answer": answer}
        n_parts = 0
        for part in answer:
            exchange.write(part, folder / "parts" / str(n_parts))
            n_parts += 1
        return {"parts": n_parts}
    except CompareError as error:
        return {"refused": type(error).__name__, "sentence": str(error)}
    except BaseException as error:  # foreign code raises SystemExit and the like too
        if not complaints.is_foreign(error, files):
            return {"failed": traceback.format_exc()}
        return _complaint(error, files)


def _complaint(error: BaseException, files: Sequence[Path]) -> dict[str, Any]:
    if isinstance(error, SystemExit):
        code = complaints.first_line(repr(error.code))
        sentence = f"ended the process by exit({code})"
        place = complaints.place_of(error, files)
        return {"complaint": "exited", "sentence": f"{place}: {sentence}"}
    return {"complaint": "raised", "sentence": complaints.describe(error, files)}


def _write(answer: dict[str, Any], folder: Path, files: Sequence[str]) -> None:
    part = folder / "answer.part"
    try:
        exchange.write(answer, part)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        place = complaints.names_of(list(map(Path, files)))
        sentence = f"{place}: returned more than {_LARGEST_FILE_BYTES >> 30} GB"
        exchange.write({"complaint": "output", "sentence": sentence}, part)
    part.replace(folder / "answer")
