"""The description of what an op is tried, timed and judged on; no call needs it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bindings.op import Op, Outputs

# Shapes around the ends of an elementwise kernel's vectors (4 and 8), warps and tiles
# (512 to 4096 elements), primes, and shapes without elements.
ELEMENTWISE_EDGES: tuple[tuple[int, ...], ...] = (
    (),
    (0,),
    (3, 0, 2),
    *((n,) for n in (1, 7, 8, 9, 31, 33, 511, 513, 1023, 1025, 2047, 2048, 2049, 4097)),
    (7919,),
    (3, 5, 7),
    (65, 129),
)

# From 4 KiB to 1 GiB of float32.
ELEMENTWISE_SWEEP: tuple[tuple[int, ...], ...] = tuple((4**n,) for n in range(5, 15))

# Widths of models and vocabularies that are not powers of 2. Most rows of the last do
# not begin at a multiple of 16 bytes.
UNEVEN_ROWS = ((13000, 5120), (6000, 11008), (5500, 12288), (1300, 50257))

# Makes the tensors of a case from a shape and a generator.
Inputs = Callable[[tuple[int, ...], torch.Generator], tuple[Tensor, ...]]


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
        wasteful_kernels: Parts of the names of kernels whose accesses may be as they
            are, since the twin cannot serve calls on their architectures.
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
    wasteful_kernels: tuple[str, ...] = ()
    narrow_kernels: tuple[str, ...] = ()
    conflicting_kernels: tuple[str, ...] = ()
    instructions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def _unchanged(*inputs: Tensor) -> tuple[Tensor, ...]:
    return inputs


@dataclass(frozen=True)
class Trial:
    """What one op is tried, timed and judged on.

    Attributes:
        op: The op.
        inputs: Makes the tensors of a case from a shape and a generator: numbers in
            float32, indices in int64, and 8-bit floats, which stay what they are.
        traffic: The fewest bytes that a shape and an element size make necessary.
        small_shape: Runs on a CPU in about a second.
        large_shape: Fits in no cache of a GPU.
        benchmark_shapes: Shapes that the op's speed is judged by.
        ladder_shape: The shape that the ladder is climbed on, where another is too much
            for its first rung; None for the first of `benchmark_shapes`, or, of an op
            that is bound by memory, `large_shape`.
        sweep_shapes: Shapes from one bound by the launch to one bound by memory.
        sweep_over: The one of `shape_names` that these differ by, of an op that has
            `flops`; others are drawn over the bytes that they move.
        edge_shapes: Shapes where the kernels change: around the ends of their tiles.
        complete: Takes the tensors from `inputs`, by now in a dtype and a layout, and
            returns all of the op's: those, and the ones that a forward would have saved
            for them.
        dtype_parameter: The argument that a case's dtype is, which is the result's, of
            an op whose inputs have dtypes of their own; empty where inputs have it.
        optional_inputs: Names of the last of `inputs`, which the op can do without. A
            variant that has one gives True for it.
        variants: Keyword arguments under which the op computes something else.
        timed_variants: Those that are timed and recorded; all by default.
        float32_variants: Those that change nothing for other dtypes, and are not timed
            there.
        timed_dtypes: The dtypes that are, by name.
        shape_names: Names of the numbers of a shape, such as "M", where they are not
            the sizes of an input's dimensions.
        flops: Multiplications and additions of a shape and a variant; None for an op
            that is bound by memory at every shape.
        largest_input: Magnitude beyond which float32 arithmetic overflows inside the
            op, though its result might be finite; nothing is promised there.
        yardstick: PyTorch's computation in just the precision asked for, which the op
            is judged by in place of `reference`, where on a GPU that may be more
            precise; None where it never is.
        is_rounded_once: Whether PyTorch's result alone is right, bit for bit.
        is_judged_by_row: Whether errors are relative to the row that they occur in;
            else, where rows are differences of larger numbers, to the whole result.
        code_contract: Requirements on the generated code; None where the ladder has no
            twin yet, of which alone they are.
        other_kernels: Kernels that a call may take in place of the twin, by name: one
            sentence on the calls they serve and why they are not twins. Kernels that
            only one language has, or that the two write differently, are declared here.
    """

    op: Op
    inputs: Inputs
    traffic: Callable[[tuple[int, ...], int], Traffic]
    small_shape: tuple[int, ...]
    large_shape: tuple[int, ...]
    benchmark_shapes: tuple[tuple[int, ...], ...]
    sweep_shapes: tuple[tuple[int, ...], ...]
    edge_shapes: tuple[tuple[int, ...], ...]
    complete: Callable[..., tuple[Tensor, ...]] = _unchanged
    dtype_parameter: str = ""
    optional_inputs: tuple[str, ...] = ()
    ladder_shape: tuple[int, ...] | None = None
    variants: tuple[dict[str, Any], ...] = ({},)
    timed_variants: tuple[dict[str, Any], ...] | None = None
    float32_variants: tuple[dict[str, Any], ...] = ()
    timed_dtypes: tuple[str, ...] = ("float32", "bfloat16")
    shape_names: tuple[str, ...] = ()
    sweep_over: str = ""
    flops: Callable[[tuple[int, ...], Mapping[str, Any]], int] | None = None
    largest_input: float = math.inf
    yardstick: Callable[..., Outputs] | None = None
    is_rounded_once: bool = False
    is_judged_by_row: bool = True
    code_contract: CodeContract | None = CodeContract()
    other_kernels: Mapping[str, str] = field(default_factory=dict)

    def bind(
        self,
        tensors: tuple[Tensor, ...],
        params: Mapping[str, Any],
        dtype: torch.dtype | None = None,
    ) -> tuple[Any, ...]:
        """Returns all arguments of the op, in order.

        Args:
            tensors: The tensors from `inputs` and `complete`, optional ones included.
            params: The other arguments by name; those left out have their defaults.
            dtype: The case's, for an op that has it as an argument.
        """
        if self.dtype_parameter and dtype is not None:
            params = {self.dtype_parameter: dtype, **params}
        n_required = len(tensors) - len(self.optional_inputs)
        optional = dict(zip(self.optional_inputs, tensors[n_required:], strict=True))
        named = {
            name: (optional[name] if value else None) if name in optional else value
            for name, value in params.items()
        }
        call = inspect.signature(self.op.allocate).bind(*tensors[:n_required], **named)
        call.apply_defaults()
        return call.args


def normal(n_inputs: int = 1, scale: float = 1.0) -> Inputs:
    """Inputs of one shape from a normal distribution around 0."""

    def inputs(
        shape: tuple[int, ...], generator: torch.Generator
    ) -> tuple[Tensor, ...]:
        return tuple(
            scale * torch.randn(shape, generator=generator) for _ in range(n_inputs)
        )

    return inputs


def with_gradient(inputs: Inputs) -> Inputs:
    """Inputs of a backward: the gradient of an output of that shape, then these."""

    def inputs_backward(
        shape: tuple[int, ...], generator: torch.Generator
    ) -> tuple[Tensor, ...]:
        return (torch.randn(shape, generator=generator), *inputs(shape, generator))

    return inputs_backward


def each_element(
    reads: int = 1, writes: int = 1
) -> Callable[[tuple[int, ...], int], Traffic]:
    """The traffic of an op that reads and writes so many tensors of its shape."""

    def traffic(shape: tuple[int, ...], element_size: int) -> Traffic:
        n_bytes = math.prod(shape) * element_size
        return Traffic(reads * n_bytes, writes * n_bytes)

    return traffic
