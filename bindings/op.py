"""What the project knows of an op: one description for backends, tests and reports."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

# What crosses to a launcher: tensors (as pointers on the native side, null for one that
# is absent) and numbers.
Argument = Tensor | int | bool | float | None

# What an op returns: its output, or all of them.
Outputs = Tensor | tuple[Tensor, ...]

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def as_tuple(outputs: Outputs) -> tuple[Tensor, ...]:
    """All outputs, also where there is one."""
    return outputs if isinstance(outputs, tuple) else (outputs,)


@dataclass(frozen=True)
class Traffic:
    """Bytes that cross between the chip and its memory.

    Attributes:
        read_bytes: Read.
        written_bytes: Written.
    """

    read_bytes: int
    written_bytes: int

    @property
    def total_bytes(self) -> int:
        """Both."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True)
class CodeContract:
    """What both compilers have to make of an op's kernels, on every architecture.

    On contiguous tensors of these shapes, in every variant and dtype, it always holds
    that no thread spills registers or has other local memory, that no instruction
    computes in float64, that every access is within its tensor, that a warp's accesses
    to global memory touch the fewest sectors of 32 bytes that hold as much, and that
    those to shared memory are free of bank conflicts.

    Attributes:
        shapes: Those that pick each of the op's kernels. Their rows begin at multiples
            of 32 bytes, or the fewest sectors cannot be kept to. By default the large
            shape alone.
        access_bytes: What the widest load of global memory and the widest store move
            for one thread.
        is_reduction: Whether so little is written that it may be stored as it comes.
        narrow_kernels: Parts of the names of kernels of which that is not asked, since
            what they read or write is little beside the rest.
        conflicting_kernels: Parts of the names of kernels that may have bank conflicts,
            since their compiler alone decides how they use shared memory.
        instructions: By a part of a kernel's name regular expressions for instructions
            of the GPU, such as "HGMMA" for its tensor cores, each of which it has to
            have. What the tensor memory accelerator loads, or stores, has no width.
    """

    shapes: tuple[tuple[int, ...], ...] = ()
    access_bytes: int = 16
    is_reduction: bool = False
    narrow_kernels: tuple[str, ...] = ()
    conflicting_kernels: tuple[str, ...] = ()
    instructions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Gradient:
    """How the gradient of an op's output becomes those of its arguments.

    Attributes:
        save: Takes autograd's context, the op's arguments and what it returned, and
            keeps what `compute` needs.
        compute: Takes `run`, which calls another op by the same backend, the context,
            and the gradient of each output; returns one of each argument, None for
            those that have none.
        n_inputs: How many of the inputs, from the first on, have a gradient; None where
            all do that hold numbers. The others are refused if they require one.
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
        name: The name of the launcher in both languages.
        schema: Parameters and result in torch.library's language.
        allocate: Takes the op's own arguments, raises for those it cannot serve, and
            returns the output, not yet written, or a tuple of them.
        operands: Takes all outputs and then the op's arguments, and returns what both
            bare launchers take, the rung excepted. Makes the one contiguous copy, if
            the layout asks for it.
        reference: The same by PyTorch, in the dtype of its input.
        yardstick: What `reference` is judged by in its place, where on a GPU PyTorch
            may take a better precision than the one asked for; None where it cannot.
        inputs: Makes the tensors of a case in float32, by shape and generator; those
            that hold no numbers but indices, in int64.
        traffic: The fewest bytes that a shape and an element size make necessary.
        small_shape: What a CPU gets through in about a second.
        large_shape: What no cache of a GPU holds.
        benchmark_shapes: Those that its speed is judged by.
        sweep_shapes: From one that is all launch to one that is all memory.
        edge_shapes: Where its kernels change: around the ends of their tiles.
        variants: Keyword arguments under which the op computes something else.
        shape_names: What the numbers of a shape are, such as "M", where they are not
            the sizes of an input's dimensions.
        optional_inputs: The names of the last of `inputs` which the op does without. A
            variant that has one says so by True.
        flops: Multiplications and additions of a shape; None of an op that is bound by
            memory whatever its shape.
        rungs: The steps of its ladder, from the textbook's kernel to the twin, the pair
            that `compare` shows: each a file in csrc/<source> and in
            triton_kernels/<source>.
        rung: The one that computes it; empty for what a call takes, which a table
            chooses by shape and dtype.
        other_kernels: Those that a call may take in place of the twin, by name: what
            they serve and why they are no twins, in one sentence. What only one
            language has is declared here, and what the two write differently.
        largest_input: Beyond this float32 arithmetic overflows inside of the op, though
            its result might be finite; nothing is promised there.
        is_rounded_once: Whether only one result is right, bit for bit: PyTorch's.
        complete: Takes what `inputs` made, by now in a dtype and a layout, and returns
            the op's tensors: those, and what a forward would have saved of them.
        forward: The name of the op that this is the backward of; empty if it is none.
        gradient: What autograd does; None where there is no gradient.
        overloads: Schemas by name for arguments of other types, which `call` is told to
            take.
        code_contract: What its generated code has to be like.
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
    gradient: Gradient | None = None

    @property
    def source(self) -> str:
        """The name of its folder in csrc and in triton_kernels."""
        return self.forward or self.name

    def on_rung(self, rung: str) -> Op:
        """The op as one of its rungs computes it; as a call does, of an empty name."""
        if rung and rung not in self.rungs:
            known = ", ".join(self.rungs)
            raise ValueError(f"{self.name}: rung must be one of {known}, got {rung!r}")
        return replace(self, rung=rung)

    def arguments(self, *outputs_and_arguments: Any) -> tuple[Argument, ...]:
        """What both bare launchers take: the operands, and the number of the rung.

        Rungs count from 1; 0 leaves the choice to the launcher.
        """
        number = 1 + self.rungs.index(self.rung) if self.rung else 0
        return (*self.operands(*outputs_and_arguments), number)

    def bind(
        self, tensors: tuple[Tensor, ...], params: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """All arguments of the op, in their order.

        Args:
            tensors: What `inputs` and `complete` have made, the optional ones too.
            params: The others by name; those left out have their default.
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
