"""What the words of a command line ask to compare: pairs, descriptions, collections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from compare.errors import CompareError, UsageError
from compare.pairs import entry as entries
from compare.pairs import gpu_mode, kernelbench
from compare.pairs.entry import Entry
from compare.pairs.pair import Request
from compare.pairs.question import Problem

_MOST_OF_A_PAIR = 2
_MAKES_ITS_OWN = "--inputs: a problem of KernelBench's makes its own"


@dataclass(frozen=True)
class Plan:
    """The comparisons to make.

    Attributes:
        requests: Each becomes a report.
        is_collection: Whether they are shown in one table.
    """

    requests: tuple[Request, ...]
    is_collection: bool


def plan(
    words: Sequence[str], inputs: str, reference: str, settings: Sequence[str] = ()
) -> Plan:
    """Reads the words.

    Args:
        words: Files, each with a function behind a colon or without; or folders.
        inputs: A Python expression; empty if the files say it.
        reference: Likewise.
        settings: Other values of the constants in a problem of KernelBench's, each as
            NAME=VALUE.

    Raises:
        UsageError: They make no sense. One file of several that makes none is no
            error: its request has the reason.
        BuildFailedError: A file that has to be read is no Python.
        UnavailableError: A solution puts its source together while it runs.
    """
    if reference and not inputs:
        raise UsageError("--reference: say what to call it with, too, by --inputs")
    given = Problem("options", inputs=inputs, reference=reference) if inputs else None
    planned = _planned(words, given)
    return _with_constants(planned, settings) if settings else planned


def _planned(words: Sequence[str], given: Problem | None) -> Plan:
    if len(words) == 1 and _is_collection(Path(words[0])):
        folder = Path(words[0])
        found = [str(each) for each in entries.files_in(folder) if _takes_part(each)]
        if not found:
            raise UsageError(f"{words[0]} has no .cu file and no .py file with kernels")
        return _collection(found, given)
    if len(words) > _MOST_OF_A_PAIR:
        return _collection(words, given)
    return Plan((_request(words, given),), is_collection=False)


def _with_constants(planned: Plan, settings: Sequence[str]) -> Plan:
    """The same with other constants in the problem."""
    problem = next((e.problem for e in planned.requests if e.problem), None)
    if problem is None or problem.style != "kernelbench" or problem.path is None:
        raise UsageError("--set: only a problem of KernelBench's has constants to set")
    constants = dict(kernelbench.setting(problem.path, each) for each in settings)
    changed = replace(problem, constants=constants)
    requests = (
        replace(each, problem=changed) if each.problem else each
        for each in planned.requests
    )
    return replace(planned, requests=tuple(requests))


def _is_collection(path: Path) -> bool:
    return path.is_dir() and not gpu_mode.is_folder(path)


def _takes_part(path: Path) -> bool:
    """Whether a file of a folder is more than a helper of the others."""
    if path.suffix != ".py":
        return True
    try:
        return (
            kernelbench.is_problem(path)
            or kernelbench.is_solution(path)
            or entries.launches_kernels(path)
            or entries.read_description(path) is not None
        )
    except CompareError:
        return True  # its row of the table says what is wrong


def _collection(words: Sequence[str], given: Problem | None) -> Plan:
    """A comparison for each file; a problem of KernelBench's is that of all others."""
    problems = [each for each in words if _is_problem(each)]
    if len(problems) > 1:
        raise UsageError(f"{problems[0]} and {problems[1]} are both problems: give one")
    if problems and given:
        raise UsageError(_MAKES_ITS_OWN)
    rest = [each for each in words if each not in problems]
    if not rest:
        raise UsageError(f"{problems[0]} is a problem: give a solution, too")
    return Plan(
        tuple(_request_or_obstacle([*problems, each], given) for each in rest),
        is_collection=True,
    )


def _request_or_obstacle(words: Sequence[str], given: Problem | None) -> Request:
    """The comparison of the last of some words, or why there is none."""
    try:
        return _request(words, given)
    except CompareError as error:
        path = Path(words[-1].partition(":")[0])
        return Request((Entry(path),), obstacle=error)


def _is_problem(word: str) -> bool:
    path = Path(word)
    return path.suffix == ".py" and path.is_file() and kernelbench.is_problem(path)


def _request(words: Sequence[str], given: Problem | None) -> Request:
    """The comparison of one or two words."""
    if len(words) == 1 and (found := entries.read_description(Path(words[0]))):
        if given:
            raise UsageError(f"--inputs: {words[0]} says what to call it with")
        problem = Problem("description", found.path)
        launching = found.path if found.has_launch else None
        return _checked(Request(found.entries, problem, launching))
    if _is_problem(words[0]):
        path = Path(words[0])
        if len(words) == 1:
            raise UsageError(f"{words[0]} is a problem: give a solution, too")
        if given:
            raise UsageError(_MAKES_ITS_OWN)
        solution = entries.parse(words[1])
        return _checked(Request((solution,), Problem("kernelbench", path)))
    parsed = tuple(map(entries.parse, words))
    folders = [each for each in parsed if each.style == "gpu-mode"]
    if folders:
        if len(parsed) > 1:
            raise UsageError(f"{words[0]}: a gpu-mode folder is judged alone")
        if given:
            raise UsageError("--inputs: a problem of gpu-mode's makes its own")
        problem = Problem("gpu-mode", parsed[0].path)
        return _checked(Request(_submission(parsed[0]), problem))
    return _checked(Request(parsed, given))


def _checked(request: Request) -> Request:
    """The same request, if its files can be told apart and called at all."""
    solutions = [each.path for each in request.entries if each.style == "kernelbench"]
    has_problem = request.problem and request.problem.path
    if solutions and not has_problem:
        if request.problem:
            raise UsageError(_MAKES_ITS_OWN)
        if not any(entries.has_function(each, "get_inputs") for each in solutions):
            raise UsageError(
                f"{solutions[0].name} is a solution of KernelBench's: give its problem "
                "first, a file with class Model and get_inputs()"
            )
    for each in request.entries:
        _ = each.language  # raises for a solution whose source cannot be read
    return request


def _submission(folder: Entry) -> tuple[Entry]:
    path = folder.path / "submission.py"
    if not path.is_file():
        raise UsageError(f"there is no submission.py in {folder.path}")
    return (Entry(path, folder.name or "custom_kernel", "gpu-mode"),)
