"""Runs foreign code in a process of its own, under limits, and leaves nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from compare import errors
from compare.pairs import complaints, exchange, fork_client, watch

# What an answer of the worker's holds, one of them.
_ANSWERS = {"answer", "parts", "complaint", "refused", "failed"}
# Below the private folder: the working folder, that of temporary files, and where the
# worker writes each part of its answer as soon as it is there.
_FOLDERS = ("work", "temporary", "parts")
_LONGEST_DUMP_BYTES = 1 << 20
_MEANINGS = {
    signal.SIGABRT: "the C library or an assertion gave it up",
    signal.SIGBUS: "it accessed memory that is not there",
    signal.SIGFPE: "it divided an integer by zero",
    signal.SIGILL: "it ran an instruction that this CPU does not have",
    signal.SIGKILL: "perhaps by the system, for want of memory",
    signal.SIGSEGV: "it accessed memory that is not its own",
}


class ForeignCodeError(errors.CompareError):
    """The user's code failed; the message names the file, and the line if it is known.

    Attributes:
        kind: How: "raised", "time", "memory", "output", "processes", "crashed" or
            "exited".
        parts: What a task that answers in parts had answered until then.
    """

    def __init__(self, sentence: str, kind: str) -> None:
        """Takes the sentence for the user and the kind."""
        super().__init__(sentence)
        self.kind = kind
        self.parts: list[Any] = []


@dataclasses.dataclass(frozen=True)
class Limits:
    """What the worker and all that it starts may take, together.

    Attributes:
        seconds: From its task to its answer.
        memory_bytes: Resident memory, where shared pages count once.
        output_bytes: What is printed.
        processes: How many there may be at a time, the worker included.
        advice: What is said to the user besides, if time or memory run out.
    """

    seconds: float = 120
    memory_bytes: int = 12 << 30
    output_bytes: int = 16 << 20
    processes: int = 64
    advice: str = ""


DEFAULT_LIMITS = Limits()


def run(
    task: str,
    request: Mapping[str, Any],
    *,
    files: Sequence[Path],
    limits: Limits = DEFAULT_LIMITS,
    variables: Mapping[str, str] = {},
    writable: Sequence[Path] = (),
) -> Any:
    """Has a task done in a worker, and returns its answer.

    The worker may read every file, but, where the kernel has Landlock, write only into
    an empty folder that is its working folder, and is removed at the end. Before this
    returns or raises, every process that the worker started has ended. If this process
    is killed, they end too.

    Args:
        task: A module of compare.pairs, or with a dot in it the whole name of any. Its
            function `answer` takes the request. If that is a generator, it answers in
            parts: what it yields comes back as a list.
        request: What `exchange.write` takes, as the answer must be.
        files: The user's files, for messages.
        limits: What the worker may take.
        variables: Environment variables, added to those of this process.
        writable: Folders, such as caches, where the worker may write too. They are made
            if they do not exist.

    Raises:
        ForeignCodeError: If the user's code raises, crashes, exits or breaks a limit.
        CompareError: The same that the task has raised, and of the same class.
        RuntimeError: If the task fails otherwise, by a fault of this project; with the
            worker's traceback.
    """
    absolute = [Path(os.path.abspath(file)) for file in files]
    for each in writable:
        each.mkdir(parents=True, exist_ok=True)
    with _private_folder() as folder, fork_client.watcher(folder) as watcher:
        exchange.write(request, folder / "request")
        plan = {
            "task": task if "." in task else f"compare.pairs.{task}",
            "files": list(map(str, absolute)),
            "limits": dataclasses.asdict(limits),
            "writable": [os.path.abspath(each) for each in writable],
            "environment": _environment(folder, variables),
            "path": fork_client.module_path(),
        }
        status, text = watcher.finish(plan)
        if status < 0:
            sentence = f"the process that watched over it {_killed_by(-status)}"
            raise _error(sentence, "crashed", complaints.names_of(absolute))
        if status > 0:
            raise RuntimeError(f"the watcher failed:\n{text}")
        try:
            return _conclude(json.loads(text), folder, absolute, limits)
        except ForeignCodeError as error:
            error.parts = _read_parts(folder)
            raise


def prepare() -> None:
    """Has torch imported meanwhile for the workers of the next tasks."""
    fork_client.start()


@contextlib.contextmanager
def _private_folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="compare-", ignore_cleanup_errors=True) as name:
        folder = Path(os.path.realpath(name))
        for each in _FOLDERS:
            (folder / each).mkdir()
        yield folder


def _environment(folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(fork_client.module_path()),
        "TMPDIR": str(folder / "temporary"),
        # torch.compile writes the name of its folder into the environment: if it has
        # run in this process, the worker would get one that it may not write to.
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "temporary/inductor"),
        **variables,
    }


def _conclude(
    report: Mapping[str, Any], folder: Path, files: Sequence[Path], limits: Limits
) -> Any:
    """Returns the answer, or raises what stands in its place."""
    place = _place(folder, files)
    if report["left"]:
        pids = ", ".join(map(str, report["left"]))
        raise _error(f"processes that it left cannot be ended: {pids}", "time", place)
    if report["broken"]:
        kind, sentence = _broken_limit(report["broken"], limits)
        if limits.advice and kind in ("time", "memory"):
            sentence += f"; {limits.advice}"
        raise _error(sentence, kind, place)
    if not os.path.lexists(folder / "answer"):
        kind, sentence = _end_without_answer(report, folder)
        raise _error(sentence, kind, place)
    try:
        answer = _read_answer(folder)
    except (exchange.ExchangeError, OSError) as error:
        sentence = f"the answer of its process cannot be read: {error}"
        raise _error(sentence, "crashed", place) from None
    sentence = str(answer.get("sentence"))
    if "complaint" in answer:
        raise ForeignCodeError(sentence, str(answer["complaint"]))
    if "refused" in answer:
        refusal = getattr(errors, str(answer["refused"]), errors.CompareError)
        raise refusal(sentence)
    if "failed" in answer:
        raise RuntimeError(f"the worker failed:\n{answer['failed']}")
    return answer["answer"]


def _broken_limit(broken: str, limits: Limits) -> tuple[str, str]:
    """Returns the kind and the sentence."""
    return {
        "time": ("time", f"did not end within {limits.seconds:g} s"),
        "memory": ("memory", f"took more than {_size(limits.memory_bytes)} of memory"),
        "output": ("output", f"wrote more than {_size(limits.output_bytes)} of output"),
        "processes": ("processes", f"started more than {limits.processes} processes"),
        "threads": ("processes", f"started more than {watch.MOST_THREADS} threads"),
    }[broken]


def _end_without_answer(report: Mapping[str, Any], folder: Path) -> tuple[str, str]:
    """Returns the kind and the sentence."""
    status, output = report["status"], report["output"]
    if not (folder / "faults").exists():
        raise RuntimeError(f"the worker did not start:\n{output}")
    if status < 0:
        kind, sentence = "crashed", f"the process {_killed_by(-status)}"
    else:
        kind = "exited"
        sentence = f"the process ended with status {status} before it had answered"
    last_line = complaints.first_line("\n".join(reversed(output.splitlines())))
    if last_line:
        sentence += f"; the last that it printed: {last_line}"
    return kind, sentence


def _read_answer(folder: Path) -> dict[str, Any]:
    answer = _read(folder / "answer")
    if not isinstance(answer, dict) or not answer.keys() & _ANSWERS:
        raise exchange.ExchangeError("it is not what a worker writes")
    if "parts" in answer:
        parts = _read_parts(folder)
        if len(parts) != answer["parts"]:
            raise exchange.ExchangeError("parts of it are missing")
        return {"answer": parts}
    return answer


def _read_parts(folder: Path) -> list[Any]:
    """Returns the parts of an answer, up to the first that is not whole."""
    parts: list[Any] = []
    # There is no further one, or the worker ended while it wrote it.
    with contextlib.suppress(exchange.ExchangeError, OSError):
        while True:
            parts.append(_read(folder / "parts" / str(len(parts))))
    return parts


def _read(path: Path) -> Any:
    if not stat.S_ISREG(path.lstat().st_mode):  # to read a pipe would never end
        raise exchange.ExchangeError("it is not in a file")
    return exchange.read(path)


def _place(folder: Path, files: Sequence[Path]) -> str:
    """Returns the line that the worker's fault handler knew, or the files' names."""
    path = folder / "faults"
    if not path.is_file() or path.is_symlink():
        return complaints.names_of(files)
    with path.open("rb") as file:
        dump = file.read(_LONGEST_DUMP_BYTES).decode("utf-8", "replace")
    return complaints.place_in_dump(dump, files) or complaints.names_of(files)


def _error(sentence: str, kind: str, place: str) -> ForeignCodeError:
    return ForeignCodeError(f"{place}: {sentence}" if place else sentence, kind)


def _killed_by(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:  # of real time, which have no names
        return f"was killed by signal {number}"
    meaning = _MEANINGS.get(signal.Signals(number))
    return f"was killed by {name}" + (f" ({meaning})" if meaning else "")


def _size(n_bytes: int) -> str:
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if n_bytes >= unit:
            return f"{n_bytes / unit:g} {name}"
    return f"{n_bytes} bytes"
