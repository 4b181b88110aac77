"""The description of an op, one for backends, tests and reports."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
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
class Traffic:
    """Bytes that cross between the chip and its memory.

    Attributes:
        read_bytes: Bytes read.
        written_bytes: Bytes written.
    """

    read_bytes: int
    written_bytes: int

    @property
    def total_bytes(self) -> int:
        """Bytes read and written."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True)
class CodeContract:
    """Requirements on the code that both compilers make of an op's kernels.

    They hold on every architecture, for contiguous tensors of these shapes, in every
    variant and dtype. No thread spills registers or has other local memory, no
    instruction computes in float64, every access is within its tensor, a warp's
    accesses to global memory touch the fewest sectors of 32 bytes that hold as much,
    and its accesses to shared memory are free of bank conflicts.

    Attributes:
        shapes: Shapes that together pick each of the op's kernels; by default the large
            shape alone. Their rows begin at multiples of 32 bytes, without which the
            fewest sectors are out of reach.
        access_bytes: Bytes that the widest load of global memory and the widest store
            to it move for one thread. Copies by the tensor memory accelerator are
            exempt, having no width.
        is_reduction: Whether so little is written that stores may have any width and
            touch any number of sectors.
        narrow_kernels: Parts of the names of kernels that are exempt from access_bytes,
            since they read or write little beside the rest.
        conflicting_kernels: Parts of the names of kernels that may have bank conflicts,
            since their compiler alone decides how they use shared memory.
        instructions: Regular expressions, by a part of a kernel's name, for the GPU
            instructions that the kernel has to have, such as "HGMMA" for tensor cores.
    """

    shapes: tuple[tuple[int, ...], ...] = ()
    access_bytes: int = 16
    is_reduction: bool = False
    narrow_kernels: tuple[str, ...] = ()
    conflicting_kernels: tuple[str, ...] = ()
    instructions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


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


def _unchanged(*inputs: Tensor) -> tuple[Tensor, ...]:
    return inputs


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
        yardstick: PyTorch's computation in just the precision asked for, which the op
            is judged by in place of `reference`, where on a GPU that may be more
            precise; None where it never is.
        inputs: Makes the tensors of a case from a shape and a generator: numbers in
            float32, indices in int64.
        traffic: The fewest bytes that a shape and an element size make necessary.
        small_shape: Runs on a CPU in about a second.
        large_shape: Fits in no cache of a GPU.
        benchmark_shapes: Shapes that the op's speed is judged by.
        sweep_shapes: Shapes from one bound by the launch to one bound by memory.
        edge_shapes: Shapes where the kernels change: around the ends of their tiles.
        variants: Keyword arguments under which the op computes something else.
        shape_names: Names of the numbers of a shape, such as "M", where they are not
            the sizes of an input's dimensions.
        optional_inputs: Names of the last of `inputs`, which the op can do without. A
            variant that has one gives True for it.
        flops: Multiplications and additions of a shape; None for an op that is bound by
            memory at every shape.
        rungs: Steps of the op's ladder, from the textbook's kernel to the twin, which
            is the pair that `compare` shows. Each is a file in csrc/<source> and in
            triton_kernels/<source>.
        rung: The rung that computes the op; empty for the kernel that a call takes,
            which a table chooses by shape and dtype.
        other_kernels: Kernels that a call may take in place of the twin, by name: one
            sentence on the calls they serve and why they are not twins. Kernels that
            only one language has, or that the two write differently, are declared here.
        largest_input: Magnitude beyond which float32 arithmetic overflows inside the
            op, though its result might be finite; nothing is promised there.
        is_rounded_once: Whether PyTorch's result alone is right, bit for bit.
        complete: Takes the tensors from `inputs`, by now in a dtype and a layout, and
            returns all of the op's: those, and the ones that a forward would have saved
            for them.
        forward: Name of the op that this is the backward of; empty if it is none.
        launcher: The name of the launcher in both languages; by default the op's.
        gradient: Autograd's formula; None where there is no gradient.
        overloads: Schemas, by name, for arguments of other types; callers of `call`
            choose one.
        code_contract: Requirements on the generated code.
    """

    name: str
    schema: str
    allocate: Callable[..., Outputs]
    operands: Callable[..., tuple[Argument, ...]]
    reference: Callable[..., Outputs]
    inputs: Callable[[tuple[int, ...], torch.Generator], tuple[Tensor, ...]]
    traffic: Callable[[tuple[int, ...], int], Traffic]
    small_shape: tuple[int, ...]
    large_shape: tuple[int, ...]
    benchmark_shapes: tuple[tuple[int, ...], ...]
    sweep_shapes: tuple[tuple[int, ...], ...]
    edge_shapes: tuple[tuple[int, ...], ...]
    variants: tuple[dict[str, Any], ...] = ({},)
    shape_names: tuple[str, ...] = ()
    optional_inputs: tuple[str, ...] = ()
    flops: Callable[[tuple[int, ...]], int] | None = None
    rungs: tuple[str, ...] = ("first", "twin")
    rung: str = ""
    other_kernels: Mapping[str, str] = field(default_factory=dict)
    largest_input: float = math.inf
    is_rounded_once: bool = False
    complete: Callable[..., tuple[Tensor, ...]] = _unchanged
    code_contract: CodeContract = CodeContract()
    overloads: dict[str, str] = field(default_factory=dict)
    yardstick: Callable[..., Outputs] | None = None
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
        """Returns the arguments that both launchers take: operands and rung number.

        Rungs count from 1; 0 leaves the choice to the launcher.
        """
        number = 1 + self.rungs.index(self.rung) if self.rung else 0
        return (*self.operands(*outputs_and_arguments), number)

    def bind(
        self, tensors: tuple[Tensor, ...], params: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """Returns all arguments of the op, in order.

        Args:
            tensors: The tensors from `inputs` and `complete`, optional ones included.
            params: The other arguments by name; those left out have their defaults.
        """
        n_required = len(tensors) - len(self.optional_inputs)
        optional = dict(zip(self.optional_inputs, tensors[n_required:], strict=True))
        named = {
            name: (optional[name] if value else None) if name in optional else value
            for name, value in params.items()
        }
        call = inspect.signature(self.allocate).bind(*tensors[:n_required], **named)
        call.apply_defaults()
        return call.args

    @property
    def direction(self) -> str:
        """Either "forward" or "backward"."""
        return "backward" if self.forward else "forward"
