"""The cases that an op is tried on: shapes, dtypes, layouts in memory, parameters."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bindings.op import Argument, Op, as_tuple
from bindings.trials import TRIALS

# How the elements of a tensor lie in memory:
#   contiguous  one behind the other
#   transposed  the last two dimensions exchanged
#   sliced      every second entry of the first dimension; of more dimensions also a
#               margin on both sides of the last, so that rows begin at odd addresses
#   expanded    one entry of the first dimension, seen as often as that is long
#   offset      one behind the other, but not from a multiple of 16 bytes on
# And as "offset 0", "transposed 1" and so on the tensor of this number is laid out so,
# and all others are contiguous.
LAYOUTS = ("contiguous", "transposed", "sliced", "expanded", "offset")


@dataclass(frozen=True)
class Case:
    """One thing to try an op on."""

    shape: tuple[int, ...]  # of the tensors, and so of the result
    dtype: torch.dtype = torch.float32  # of the tensors and the result
    layout: str = "contiguous"  # one of LAYOUTS, perhaps with a number behind it
    # The op's other arguments, by name; those left out have their default.
    params: Mapping[str, Any] = field(default_factory=dict)
    direction: str = "forward"  # or "backward"

    @property
    def shape_name(self) -> str:
        """Such as "1823x781"."""
        return "x".join(map(str, self.shape))

    @property
    def dtype_name(self) -> str:
        """Such as "bfloat16"."""
        return str(self.dtype).removeprefix("torch.")


def make_arguments(
    op: Op, case: Case, device: str | torch.device = "cpu", seed: int = 0
) -> tuple[Any, ...]:
    """The arguments of the op in this case: its random inputs, then its parameters."""
    trial = TRIALS[op.name]
    is_meta = device == "meta"
    generator = torch.Generator("cpu" if is_meta else device).manual_seed(seed)
    no_numbers = _NoNumbers if is_meta else contextlib.nullcontext
    # A GPU makes millions of random numbers much faster.
    with torch.device(device), no_numbers():
        values = trial.inputs(case.shape, generator)
    inputs = lay_out_all([in_dtype(x, case.dtype) for x in values], case.layout, device)
    with no_numbers():
        completed = trial.complete(*inputs)
    return trial.bind(completed, case.params, case.dtype)


# Functions of a tensor, and perhaps of a number or another tensor, that keep its shape.
_KEEP_SHAPE = (
    *(Tensor.add, Tensor.sub, Tensor.mul, Tensor.div),
    *(Tensor.abs, Tensor.cos, Tensor.sin, Tensor.square, Tensor.rsqrt),
    torch.softmax,
)


class _NoNumbers(TorchFunctionMode):
    """Makes tensors of the right shapes, without numbers, on the meta device.

    PyTorch has Python functions for that, which import its compiler: for a second.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Collection[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func in (torch.rand, torch.randn):
            return torch.empty(*args)
        if func is torch.randint:
            return torch.empty(args[-1], dtype=torch.int64)
        if func in _KEEP_SHAPE and all(_fits(each, args[0]) for each in args[1:]):
            dtype = torch.result_type(*args) if len(args) > 1 else args[0].dtype
            return args[0].new_empty(args[0].shape, dtype=dtype)
        if func is Tensor.lt:
            return args[0].new_empty(args[0].shape, dtype=torch.bool)
        is_plain = not kwargs or kwargs == {"device": "meta"}
        if func is torch.empty_like and args[0].is_contiguous() and is_plain:
            return args[0].new_empty(args[0].shape)
        if func is Tensor.mean:
            x, dim = args
            return x.new_empty(x.select(dim, 0).shape)
        return func(*args, **(kwargs or {}))


def _fits(other: object, x: Tensor) -> bool:
    """Whether a result of x and another operand has the shape of x."""
    if not isinstance(other, Tensor):
        return True
    sizes = zip(reversed(other.shape), reversed(x.shape), strict=False)
    return other.dim() <= x.dim() and all(n in (1, of_x) for n, of_x in sizes)


def in_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The values of x in a dtype, unless they are indices or 8-bit floats."""
    return x.to(dtype) if is_number(x) else x


def is_number(x: Tensor) -> bool:
    """Whether x has what a case's dtype is for: numbers, and not of 8 bits."""
    return x.is_floating_point() and x.element_size() > 1


def flip_signs(numbers: Sequence[Tensor]) -> None:
    """Changes inputs that are numbers; twice, and they are what they were.

    The first one is negated, and of the others every second element: were all negated,
    a product of two would be what it was.

    Args:
        numbers: For each of the inputs all of its memory, one-dimensional.
    """
    for i, x in enumerate(numbers):
        part = x if i == 0 else x[1::2]
        if x.element_size() == 1:  # an 8-bit float, which PyTorch does not negate
            part.view(torch.uint8).bitwise_xor_(0x80)
        else:
            part.neg_()


def lay_out_all(
    tensors: Sequence[Tensor], layout: str, device: str | torch.device
) -> list[Tensor]:
    """The values of a case's tensors on a device, in its layout."""
    name, _, number = layout.partition(" ")
    return [
        lay_out(x, "contiguous" if number and i != int(number) else name, device)
        for i, x in enumerate(tensors)
    ]


def lay_out(x: Tensor, layout: str, device: str | torch.device) -> Tensor:
    """The values of x on a device, in a layout.

    What lies in memory around them is NaN, or an index out of bounds: a kernel that
    reads beyond its tensor shows.
    """
    shape = tuple(x.shape)
    if layout == "contiguous" or (layout == "transposed" and x.dim() < 2):
        return x.to(device).contiguous()
    if layout == "transposed":
        return x.to(device).transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "expanded":
        return x[:1].to(device, copy=True).expand(shape) if x.dim() else x.to(device)
    if layout == "offset":
        view = _poison((1 + math.prod(shape),), x.dtype, device)[1:].view(shape)
    elif layout == "sliced":
        view = _sliced(shape, x.dtype, device)
    else:
        raise ValueError(f"unknown layout {layout!r}: choose one of {LAYOUTS}")
    return view.copy_(x)


def _sliced(
    shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device
) -> Tensor:
    if not shape:
        return _poison((), dtype, device)
    if len(shape) == 1:
        return _poison((2 * shape[0],), dtype, device)[::2]
    first, *middle, last = shape
    memory = _poison((2 * first, *middle, last + 3), dtype, device)
    return memory[::2, ..., 1:-2]


def _poison(
    shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device
) -> Tensor:
    value = math.nan if dtype.is_floating_point else torch.iinfo(dtype).max
    return torch.full(shape, value, dtype=dtype, device=device)


def launcher_arguments(op: Op, case: Case) -> tuple[Argument, ...]:
    """The arguments of both bare launchers in a case, on the meta device."""
    arguments = make_arguments(op, case, "meta")
    with _NoNumbers():
        outputs = as_tuple(op.allocate(*arguments))
    return op.arguments(*outputs, *arguments)
