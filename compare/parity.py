"""Whether an implementation computes what it should, and touches nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bindings import backends
from bindings.errors import BuildError, UnsupportedError
from bindings.op import Op
from compare import acceptance
from compare.acceptance import Errors, Expected
from compare.cases import Case, make_arguments

_ON_CPU = {
    "cuda": "emulator",
    "cuda_inline": "emulator",
    "triton": "interpreter",
    "torch": "cpu",
}


@dataclass(frozen=True)
class Parity:
    """How an implementation did.

    Attributes:
        ran_on: "gpu", "emulator", "interpreter" or "cpu".
        error: How far off it is, relative to the values of a row.
        allowed: How far off it may be.
        problem: What is wrong, one sentence; empty if nothing is.
    """

    ran_on: str
    error: Errors
    allowed: Errors
    problem: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problem


@dataclass(frozen=True)
class Skipped:
    """Not done, and why."""

    reason: str


@dataclass(frozen=True)
class Prepared:
    """An op in a case: arguments, and what the result should be.

    It is made before anything under test runs, once for all backends.
    """

    op: Op
    case: Case
    arguments: tuple[Any, ...]
    expected: Expected

    @property
    def tensors(self) -> list[Tensor]:
        """The arguments that are tensors."""
        return [each for each in self.arguments if isinstance(each, Tensor)]


def prepare(
    op: Op, case: Case, device: str | torch.device = "cpu", seed: int = 0
) -> Prepared:
    """Makes the arguments of a case and computes what the result should be."""
    arguments = make_arguments(op, case, device, seed)
    op.allocate(*arguments)  # raises for what the op cannot serve, in its own words
    return Prepared(op, case, arguments, acceptance.expect(op, arguments))


def check(
    op: Op, case: Case, backend: str, device: str | torch.device = "cpu"
) -> Parity | Skipped:
    """Runs one backend in one case and judges it."""
    return check_prepared(prepare(op, case, device), backend)


def check_prepared(prepared: Prepared, backend: str) -> Parity | Skipped:
    """Runs one backend and judges it.

    The output is full of NaN beforehand, so that an element nobody writes shows; the
    inputs, and what lies around them in memory, have to be the same afterwards, bit for
    bit.

    Raises:
        BuildError: A native module could not be built.
    """
    op, arguments = prepared.op, prepared.arguments
    before = [_memory(x).clone() for x in prepared.tensors]
    out = op.allocate(*arguments).fill_(math.nan)
    ran_on = "gpu" if out.is_cuda else _ON_CPU[backend]
    try:
        if out.numel() > 0:
            backends.run(backend, op, out, *arguments)
        if out.is_cuda:
            torch.cuda.synchronize(out.device)
    except UnsupportedError as error:
        return Skipped(str(error))
    except (BuildError, torch.OutOfMemoryError):
        raise  # nothing that the kernel has done
    except (RuntimeError, TimeoutError) as error:
        nothing = Errors(math.nan, math.nan)
        return Parity(ran_on, nothing, nothing, str(error))
    verdict = acceptance.judge(out, prepared.expected)
    problem = _side_effects(out, prepared.tensors, before) or verdict.problem
    return Parity(ran_on, verdict.error, verdict.allowed, problem)


def _side_effects(out: Tensor, inputs: list[Tensor], before: list[Tensor]) -> str:
    for x, bytes_before in zip(inputs, before, strict=True):
        if not torch.equal(_memory(x), bytes_before):
            return "an input, or memory around it, was written to"
        if out.numel() and out.untyped_storage().data_ptr() == _memory(x).data_ptr():
            return "the output lies in the memory of an input"
    return ""


def _memory(x: Tensor) -> Tensor:
    """Every byte of what x is a view of."""
    return torch.tensor([], dtype=torch.uint8, device=x.device).set_(
        x.untyped_storage()
    )
