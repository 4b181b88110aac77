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
    function = _function(module, name)
    keywords = _keywords(function)
    if not keywords:
        return function

    def launch(*arguments: Any) -> None:
        end = len(arguments) - len(keywords)
        function(*arguments[:end], **dict(zip(keywords, arguments[end:], strict=True)))

    return launch


def parameters(module: str, name: str, n_arguments: int) -> list[str]:
    """The name of each of a launcher's arguments; strides share one."""
    names = []
    parameters = inspect.signature(_function(module, name)).parameters
    for each in parameters.values():
        is_rest = each.kind is each.VAR_POSITIONAL
        names += [each.name] * (1 + n_arguments - len(parameters) if is_rest else 1)
    return names


def _function(module: str, name: str) -> Callable[..., None]:
    function: Callable[..., None] = getattr(importlib.import_module(module), name)
    return function


@functools.cache
def _keywords(function: Callable[..., None]) -> tuple[str, ...]:
    parameters = inspect.signature(function).parameters.values()
    return tuple(each.name for each in parameters if each.kind is each.KEYWORD_ONLY)
