"""The tensors of arguments and results, also in lists and dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from compare.pairs.calls import FaultError


def map_tensors(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """The same value with its tensors, also in lists and dictionaries, changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {name: map_tensors(each, change) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [map_tensors(each, change) for each in value]
    return value


def named_tensors(
    names: Sequence[str], values: Sequence[Any]
) -> Iterator[tuple[str, Tensor]]:
    """The tensors among values, in order, with names such as "x" and "x[0]"."""
    for name, value in zip(names, values, strict=False):
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, Mapping):
            inner = [f"{name}[{key!r}]" for key in value]
            yield from named_tensors(inner, [*value.values()])
        elif isinstance(value, list | tuple):
            inner = [f"{name}[{i}]" for i in range(len(value))]
            yield from named_tensors(inner, value)


def results(result: Any, place: str) -> Iterator[Tensor]:
    """The tensors that a function has returned, and its numbers as tensors.

    Args:
        result: What it returned; None within it is left out.
        place: Where the function is, for the message.

    Raises:
        FaultError: It returned something else.
    """
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, int | float):
        yield torch.tensor(result)
    elif isinstance(result, Mapping):
        yield from results([*result.values()], place)
    elif isinstance(result, list | tuple):
        for each in result:
            if each is not None:
                yield from results(each, place)
    else:
        kind = type(result).__name__
        raise FaultError(f"{place}: returned a {kind}, which is no tensor")
