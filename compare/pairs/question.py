"""What both sides of a pair are asked, and what the answers should be."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from compare.errors import UnavailableError, UsageError
from compare.judge.acceptance import Expected
from compare.pairs import gpu_mode, sandbox
from compare.pairs.calls import Call

# In which threads and blocks run; the first call as given is in the first one.
ORDERS = ("forward", "reverse", "random:1", "random:2")

# The name of the calls on unchanged inputs.
AS_GIVEN = "as given"

# The checks that a call can count for; all others are on the calls as given.
OTHER_INPUTS = "other inputs"
OFFSET = "offset inputs"
STRIDED = "strided inputs"
SPECIALS = "NaN and infinities"
LARGE = "large values"

# What a result may consist of.
_JUDGED = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
)


@dataclass(frozen=True)
class Problem:
    """Where the inputs of a pair and its reference come from.

    Attributes:
        style: "options", "description", "kernelbench" or "gpu-mode".
        path: The file pair.py, KernelBench's problem, or gpu-mode's folder.
        inputs: Of style "options": a Python expression such as `randn(1823, 781)`,
            in which the names of torch are known. A tuple is several inputs.
        reference: Of style "options": `torch.softmax:dim=-1`, `mine.py:function`,
            an expression such as `lambda x, w: x @ w`, or "" for none.
        seed: Of all random numbers.
        constants: Of style "kernelbench": Python expressions for constants of the file,
            by their names, in the place of those that it gives them.
    """

    style: str
    path: Path | None = None
    inputs: str = ""
    reference: str = ""
    seed: int = 0
    constants: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """A call, and what it should return.

    Attributes:
        call: What both sides are asked.
        expected: For each output; empty if there is no reference. Of an output of
            whole numbers or truth values, both yardsticks are of its own dtype.
        doubtful: For each output, where NaN or an infinity is as right as the exact
            value, since the reference says no clear word on it; None if nowhere.
        check: The check that the call counts for; empty for the calls as given.
    """

    call: Call
    expected: tuple[Expected, ...]
    doubtful: tuple[Tensor | None, ...]
    check: str = ""


@dataclass(frozen=True)
class Question:
    """All that both sides are asked.

    Attributes:
        calls: In the order in which they are to be made, in one process.
        notes: Sentences on what the question leaves out, and why.
        names: Of the inputs.
        is_deterministic: Whether the same bits are expected every time.
        dtype: Of the first input of floating-point numbers, or else the first tensor.
        is_packed: Whether the function takes all inputs in one tuple (gpu-mode).
        modified: The numbers of the inputs that the reference itself writes to.
    """

    calls: tuple[Asked, ...]
    notes: tuple[str, ...]
    names: tuple[str, ...]
    is_deterministic: bool
    dtype: torch.dtype
    is_packed: bool = False
    modified: tuple[int, ...] = ()

    @property
    def has_reference(self) -> bool:
        """Whether it is known what the calls should return."""
        return any(asked.expected for asked in self.calls)

    @property
    def as_given(self) -> Asked:
        """The first call on unchanged inputs."""
        return next(asked for asked in self.calls if asked.call.name == AS_GIVEN)

    def in_orders(self, orders: Collection[str]) -> Question:
        """The question without the calls in other orders of execution."""
        kept = tuple(asked for asked in self.calls if asked.call.order in orders)
        return replace(self, calls=kept)


def ask(problem: Problem, limits: sandbox.Limits = sandbox.DEFAULT_LIMITS) -> Question:
    """Makes the inputs and computes what is expected, in a worker.

    Args:
        problem: Where inputs and reference come from.
        limits: On the worker.

    Raises:
        UsageError: An expression cannot be evaluated, or the inputs or results are of
            kinds that cannot be passed on.
        UnavailableError: The results are of a dtype that cannot be judged.
        ForeignCodeError: The user's code raised, crashed or did not end.
    """
    request = described(problem)
    files = files_of(problem)
    answer = sandbox.run("questions_task", request, files=files, limits=limits)
    return read_answer(answer)


def described(problem: Problem) -> dict[str, Any]:
    """What a worker is told of a problem, for `question_sources.read`.

    Raises:
        UsageError: A gpu-mode folder has no task.yml, or one that cannot be read.
        UnavailableError: PyYAML is missing.
    """
    request = {
        "style": problem.style,
        "path": str(problem.path.resolve()) if problem.path else "",
        "inputs": problem.inputs,
        "reference": _with_whole_path(problem.reference),
        "seed": problem.seed,
        "constants": dict(problem.constants),
        "cases": [],
    }
    if problem.style == "gpu-mode":
        assert problem.path
        request["cases"] = gpu_mode.cases(problem.path)
    return request


def read_answer(answer: Mapping[str, Any]) -> Question:
    """The question that the worker answered with.

    Raises:
        UnavailableError: The results are of a dtype that cannot be judged.
    """
    calls = tuple(
        _asked(each, answer["values"][each["values"]], answer)
        for each in answer["calls"]
    )
    first = calls[0].call.inputs
    tensors = [each for each in first if isinstance(each, Tensor)]
    floats = [each for each in tensors if each.is_floating_point()]
    return Question(
        calls=calls,
        notes=tuple(answer["notes"]),
        names=tuple(answer["names"]),
        is_deterministic=answer["is_deterministic"],
        dtype=(floats or tensors)[0].dtype,
        is_packed=answer["is_packed"],
        modified=tuple(answer["modified"]),
    )


def _asked(
    call: Mapping[str, Any], values: Mapping[str, Any], answer: Mapping[str, Any]
) -> Asked:
    n_terms = answer["n_terms"] or [1] * len(values["exact"])
    for own in values["torch"]:
        if own.dtype not in _JUDGED:
            raise UnavailableError(f"results of {own.dtype} cannot be judged")
    return Asked(
        Call(call["name"], tuple(values["inputs"]), call["layout"], call["order"]),
        tuple(
            Expected(exact, own, n_terms=n)
            for exact, own, n in zip(
                values["exact"], values["torch"], n_terms, strict=True
            )
        ),
        tuple(values["doubtful"]),
        call["check"],
    )


# A function in a file, and arguments for it.
_IN_FILE = re.compile(r"(?P<path>[^():]+\.py):(?P<rest>\s*\w+\s*(:.*)?)", re.DOTALL)


def _with_whole_path(reference: str) -> str:
    """A reference whose file is named by its whole path; the worker runs elsewhere."""
    if match := _IN_FILE.fullmatch(reference):
        return f"{Path(match['path']).resolve()}:{match['rest']}"
    return reference


def files_of(problem: Problem) -> list[Path]:
    """The user's files that inputs and reference come from, by their whole paths.

    Raises:
        UsageError: A gpu-mode folder has no task.yml, or one that cannot be read; or
            there is no file of the reference.
        UnavailableError: PyYAML is missing.
    """
    found: list[Path] = []
    if problem.style == "gpu-mode":
        assert problem.path
        found += gpu_mode.files(problem.path)
    elif problem.path:
        found.append(problem.path.resolve())
    if match := _IN_FILE.fullmatch(problem.reference):
        path = Path(match["path"])
        if not path.is_file():
            raise UsageError(f"--reference: there is no file {path}")
        found.append(path.resolve())
    return found
