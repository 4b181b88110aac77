"""Triton's bare launchers, called with the same arguments as those of CUDA."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any


def find(module: str, name: str) -> Callable[..., None]:
    """The launcher `name` of a module, which takes all of its arguments by position.

    A launcher gathers its tensors' strides as `*strides`; the parameters behind them
    are keywords in Python alone.
    """
    function = getattr(importlib.import_module(module), name)
    keywords = _keywords(function)
    if not keywords:
        return function  # type: ignore[no-any-return]

    def launch(*arguments: Any) -> None:
        end = len(arguments) - len(keywords)
        function(*arguments[:end], **dict(zip(keywords, arguments[end:], strict=True)))

    return launch


@functools.cache
def _keywords(function: Callable[..., None]) -> tuple[str, ...]:
    parameters = inspect.signature(function).parameters.values()
    return tuple(each.name for each in parameters if each.kind is each.KEYWORD_ONLY)
