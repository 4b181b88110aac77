"""Functions that return something else than a new tensor with the result."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu

from bad_kernels.catalogue import bad_result


@bad_result("an input was written to")
def in_place(x: Tensor, approximate: str) -> Tensor:
    """Overwrites its input with the result and returns it."""
    return x.copy_(gelu(x))


@bad_result("the result lies in the memory of an input", change=lambda x: 100 + x.abs())
def view_of_the_input(x: Tensor, approximate: str) -> Tensor:
    """Returns its input, which is right as long as that is large."""
    return x.view_as(x)


@bad_result("the shape is")
def wrong_shape(x: Tensor, approximate: str) -> Tensor:
    """Returns a column for every row."""
    return gelu(x).t()


@bad_result("the dtype is torch.float32, not torch.float16", dtype=torch.float16)
def wrong_dtype(x: Tensor, approximate: str) -> Tensor:
    """Returns the dtype that it computes in."""
    return gelu(x.float())


@bad_result("the device is meta, not")
def wrong_device(x: Tensor, approximate: str) -> Tensor:
    """Returns a tensor that has no memory at all."""
    return gelu(x.to("meta"))


class _Later(Tensor):
    """A tensor that computes its values when somebody looks at them."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        """Computes them, and calls the function on that."""
        with torch._C.DisableTorchFunctionSubclass():
            arguments = [
                gelu(each.as_subclass(Tensor)) if isinstance(each, cls) else each
                for each in arguments
            ]
            return function(*arguments, **(options or {}))


@bad_result("the result is of class _Later, not Tensor")
def lazy(x: Tensor, approximate: str) -> Tensor:
    """Takes no time at all, as long as nobody looks."""
    return x.clone().as_subclass(_Later)


@bad_result("the result is of class list, not Tensor")
def list_of_rows(x: Tensor, approximate: str) -> list[Tensor]:
    """Returns what torch.stack would make a tensor of."""
    return list(gelu(x))


@bad_result("335 of 335 elements are NaN and should not be")
def memory_of_the_reference(x: Tensor, approximate: str) -> Tensor:
    """Returns fresh memory, where a result that was freed before it might still lie."""
    return torch.empty_like(x)
