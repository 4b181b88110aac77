"""A launch's arguments as a template, to repeat it on tensors at other addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor


class Place(NamedTuple):
    """An argument that is an address: its position, its tensor, and the byte offset."""

    position: int
    tensor: int
    offset: int


class Template(NamedTuple):
    """The arguments of a launch, with the addresses left out."""

    values: list[Any]
    places: tuple[Place, ...]

    def fill(self, addresses: Sequence[int]) -> list[Any]:
        """Returns all arguments, for tensors that begin at these addresses."""
        values = self.values.copy()
        for position, tensor, offset in self.places:
            values[position] = addresses[tensor] + offset
        return values


def template_of(arguments: Sequence[Any], tensors: Sequence[Tensor]) -> Template | None:
    """Makes a template by finding tensors, and views of them, among the arguments.

    Returns:
        The template; None if an argument is another tensor, such as a copy, or is
        neither a number nor a string nor None, and so may hold an address itself.
    """
    values: list[Any] = []
    places = []
    for position, argument in enumerate(arguments):
        value = argument
        if isinstance(argument, Tensor):
            value = 0  # the address of a tensor without elements
            if argument.numel() > 0:
                origin = _origin(argument, tensors)
                if origin is None:
                    return None
                places.append(Place(position, *origin))
        elif not isinstance(argument, (int, float, str, type(None))):
            return None
        values.append(value)
    return Template(values, tuple(places))


def _origin(x: Tensor, tensors: Sequence[Tensor]) -> tuple[int, int] | None:
    """The index of the tensor that x is, or alone can be a view of, and x's offset."""
    for i, each in enumerate(tensors):
        if x is each:
            return i, 0
    start = x.untyped_storage().data_ptr()
    same_storage = [
        (i, x.data_ptr() - each.data_ptr())
        for i, each in enumerate(tensors)
        if each.untyped_storage().data_ptr() == start
    ]
    return same_storage[0] if len(same_storage) == 1 else None
