"""The list that each file of bad kernels adds to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bindings.registry import OPS
from compare.judge import acceptance
from compare.judge.cases import Case, make_arguments
from compare.judge.parity import Prepared

SHAPE = (5, 67)


@dataclass(frozen=True)
class BadKernel:
    """A kernel to reject.

    Attributes:
        name: The file and what it is called there.
        run: Takes the output to write and the op's arguments, like a backend.
        verdict: How the harness's sentence on it begins, a regular expression.
        op: The name of the op that it should compute.
        case: Where it shows.
        change: What the random inputs of the case still need for it to show.
        devices: Where it runs.
    """

    name: str
    run: Callable[..., None]
    verdict: str
    op: str
    case: Case
    change: Callable[[Tensor], Tensor]
    devices: tuple[str, ...]

    def prepare(self, device: str) -> Prepared:
        """What a harness runs it on."""
        op = OPS[self.op]
        arguments = tuple(
            self.change(each) if isinstance(each, Tensor) else each
            for each in make_arguments(op, self.case, device)
        )
        return Prepared(op, self.case, arguments, acceptance.expect(op, arguments))


@dataclass(frozen=True)
class BadResult:
    """A function to reject that users might call.

    Attributes:
        name: The name of the function.
        call: Takes the op's arguments and returns the result.
        verdict: How the harness's sentence on it begins, a regular expression.
        op: The name of the op that it should compute.
        dtype: Of the inputs.
        change: What the random inputs still need for it to show.
    """

    name: str
    call: Callable[..., Any]
    verdict: str
    op: str
    dtype: torch.dtype
    change: Callable[[Tensor], Tensor]


BAD_KERNELS: list[BadKernel] = []
BAD_RESULTS: list[BadResult] = []


def unchanged(x: Tensor) -> Tensor:
    """What most cases need."""
    return x


def bad_kernel(
    verdict: str,
    *,
    op: str = "gelu",
    case: Case = Case(SHAPE),  # noqa: B008 - it cannot be changed
    change: Callable[[Tensor], Tensor] = unchanged,
    devices: tuple[str, ...] = ("cpu", "cuda"),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Enters a kernel into the list."""

    def enter(run: Callable[..., None]) -> Callable[..., None]:
        name = f"{run.__module__.removeprefix('bad_kernels.')}.{run.__name__}"
        BAD_KERNELS.append(BadKernel(name, run, verdict, op, case, change, devices))
        return run

    return enter


def bad_result(
    verdict: str,
    *,
    op: str = "gelu",
    dtype: torch.dtype = torch.float32,
    change: Callable[[Tensor], Tensor] = unchanged,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters a function that returns a bad result into the list."""

    def enter(call: Callable[..., Any]) -> Callable[..., Any]:
        BAD_RESULTS.append(BadResult(call.__name__, call, verdict, op, dtype, change))
        return call

    return enter
