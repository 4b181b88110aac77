"""The description of an op, one for backends, tests and reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

# A launcher's argument: a number, or a tensor (a pointer on the native side, null where
# the tensor is absent).
Argument = Tensor | int | bool | float | None

# An op's result: its output, or a tuple of its outputs.
Outputs = Tensor | tuple[Tensor, ...]

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def as_tuple(outputs: Outputs) -> tuple[Tensor, ...]:
    """Returns the outputs as a tuple, even a single one."""
    return outputs if isinstance(outputs, tuple) else (outputs,)


@dataclass(frozen=True)
class Gradient:
    """Turns the gradient of an op's output into those of its arguments.

    Attributes:
        save: Takes autograd's context, the op's arguments and its result, and keeps
            what `compute` needs.
        compute: Takes `run`, which calls another op by the same backend, the context,
            and the gradient of each output; returns the gradient of each argument, None
            for those that have none.
        n_inputs: Number of the first inputs, which have a gradient; None where all
            inputs that hold numbers have one. The others are refused if they require
            one.
    """

    save: Callable[[Any, tuple[Any, ...], Any], None]
    compute: Callable[..., tuple[Tensor | None, ...]]
    n_inputs: int | None = None


@dataclass(frozen=True)
class Op:
    """One op, described once. The backward of an op is an op of its own.

    Attributes:
        name: The op's own, by which it is called.
        schema: The parameters and the result in torch.library's language.
        allocate: Takes the op's own arguments, raises for those it cannot serve, and
            returns the output, not yet written, or a tuple of outputs.
        operands: Takes all outputs and then the op's arguments, and returns the
            arguments that both bare launchers take, except the rung. Makes the one
            contiguous copy if the layout needs it.
        reference: PyTorch's computation of the op, in the dtype of its input.
        workspace: Takes the rung's name and what `operands` takes, and returns memory
            that some rungs alone need, None for others; both launchers take it behind
            the operands.
        rungs: Steps of the op's ladder, from the textbook's kernel to the twin, which
            is the pair that `compare` shows; a new op has the first alone. Each is a
            file in csrc/<source> and in triton_kernels/<source>.
        rung: The rung that computes the op; empty for the kernel that a call takes,
            which a table chooses by shape and dtype.
        forward: Name of the op that this is the backward of; empty if it is none.
        launcher: The name of the launcher in both languages; by default the op's.
        gradient: Autograd's formula; None where there is no gradient.
        overloads: Schemas, by name, for arguments of other types; callers of `call`
            choose one.
    """

    name: str
    schema: str
    allocate: Callable[..., Outputs]
    operands: Callable[..., tuple[Argument, ...]]
    reference: Callable[..., Outputs]
    workspace: Callable[..., tuple[Tensor | None, ...]] | None = None
    rungs: tuple[str, ...] = ("first", "twin")
    rung: str = ""
    overloads: dict[str, str] = field(default_factory=dict)
    forward: str = ""
    launcher: str = ""
    gradient: Gradient | None = None

    def __post_init__(self) -> None:
        """Gives the launcher the op's name unless it has another."""
        object.__setattr__(self, "launcher", self.launcher or self.name)

    @property
    def source(self) -> str:
        """The name of its folder in csrc and in triton_kernels."""
        return self.forward or self.name

    def on_rung(self, rung: str) -> Op:
        """The op computed by one of its rungs, or as in a call if the name is empty."""
        if rung and rung not in self.rungs:
            known = ", ".join(self.rungs)
            raise ValueError(f"{self.name}: rung must be one of {known}, got {rung!r}")
        return replace(self, rung=rung)

    def arguments(self, *outputs_and_arguments: Any) -> tuple[Argument, ...]:
        """Returns what both launchers take: operands, workspace and rung number.

        Rungs count from 1; 0 leaves the choice to the launcher.
        """
        number = 1 + self.rungs.index(self.rung) if self.rung else 0
        operands = self.operands(*outputs_and_arguments)
        if self.workspace is None:
            return (*operands, number)
        return (*operands, *self.workspace(self.rung, *outputs_and_arguments), number)

    @property
    def direction(self) -> str:
        """Either "forward" or "backward"."""
        return "backward" if self.forward else "forward"
