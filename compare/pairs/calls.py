"""Calls that a function of the user's is asked to answer, and how they ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

# Of a call's outputs together. All outputs of a side are in memory at once.
MOST_OUTPUT_BYTES = 1 << 29


class FaultError(Exception):
    """A call did what none may; the message is the sentence."""


class InputWrittenError(FaultError):
    """A call wrote to an input that is to stay as it is."""


@dataclass(frozen=True)
class Call:
    """A function of the user's, called once.

    Attributes:
        name: What is special about it, such as "as given" or "strided inputs".
        inputs: The arguments: contiguous tensors on the CPU, and other values.
        layout: How the tensors lie in memory when they are passed, one of
            compare.judge.cases.LAYOUTS; the values are the same.
        order: In which order threads and blocks run, as TWIN_EMULATOR_ORDER takes it.
            Triton's interpreter knows forward and reverse, of whole programs.
    """

    name: str
    inputs: tuple[Any, ...]
    layout: str = "contiguous"
    order: str = "forward"

    def without_strides(self) -> Call:
        """The call with tensors of which a pointer says all: it carries no strides."""
        is_strided = self.layout in ("transposed", "sliced")
        return replace(self, layout="contiguous") if is_strided else self


@dataclass(frozen=True)
class Outcome:
    """How a call ended.

    Attributes:
        outputs: Copies of what it returned; empty where there is a problem or refusal.
        problem: A fault that was seen while it ran, in one sentence with the user's
            file and line: a race, an access out of bounds, a deadlock, an input that
            was written to, a crash.
        refusal: The exception by which the function itself declined these inputs, with
            file and line. To decline is no fault, unless of the inputs as given.
        writes_to_input: Whether the problem is that an input was written to.
    """

    outputs: tuple[Tensor, ...] = ()
    problem: str = ""
    refusal: str = ""
    writes_to_input: bool = False


def too_large(outputs: Sequence[Tensor]) -> str:
    """A sentence if outputs are too large to be judged; else empty."""
    n_bytes = sum(each.nbytes for each in outputs)
    if n_bytes <= MOST_OUTPUT_BYTES:
        return ""
    most = MOST_OUTPUT_BYTES >> 20
    return f"it returned {n_bytes >> 20:,} MB; at most {most:,} MB are judged"


def distinct(calls: Sequence[Call]) -> tuple[list[list[Any]], list[int]]:
    """The different inputs of calls, and for each call which of them it has."""
    known: dict[tuple[int, ...], int] = {}
    numbers = [
        known.setdefault(tuple(map(id, each.inputs)), len(known)) for each in calls
    ]
    values = dict(zip(numbers, calls, strict=True))
    return [[*values[number].inputs] for number in range(len(known))], numbers
