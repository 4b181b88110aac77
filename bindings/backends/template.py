"""Arguments of a launch, as they are once more for tensors in other places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor


class Place(NamedTuple):
    """Which argument is an address, of which tensor, and how far beyond its start."""

    position: int
    tensor: int
    offset: int


class Template(NamedTuple):
    """What a launch takes, but for the addresses."""

    values: list[Any]
    places: tuple[Place, ...]

    def fill(self, addresses: Sequence[int]) -> list[Any]:
        """All that it takes, where the tensors begin at these addresses."""
        values = self.values.copy()
        for position, tensor, offset in self.places:
            values[position] = addresses[tensor] + offset
        return values


def template_of(arguments: Sequence[Any], tensors: Sequence[Tensor]) -> Template | None:
    """Finds tensors, and views of them, among what a launch takes.

    Returns:
        None if one of the arguments is another tensor, such as a copy, or no number,
        string or None and may hold an address itself.
    """
    values: list[Any] = []
    places = []
    for position, argument in enumerate(arguments):
        value = argument
        if isinstance(argument, Tensor):
            value = 0  # of one without elements
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
    """Which tensor x is, or the only one that it can be a view of, and its offset."""
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
