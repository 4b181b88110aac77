"""The Python function that a worker calls: the user's own, a solution, a submission."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from torch.utils import cpp_extension

from compare.errors import UsageError
from compare.pairs import gpu_mode, kernelbench, python_file


def make(caller: Mapping[str, Any], device: str | None = None) -> Callable[..., Any]:
    """The function that answers the calls.

    Args:
        caller: style, path, and: of "file" function (its name); of "kernelbench"
            problem (the path of the problem), its constants and seed; of "gpu-mode"
            is_packed.
        device: Where a solution's weights go; None for where it puts them.

    Raises:
        UsageError: The file has no such function.
        Exception: What the user's file raises.
    """
    path = Path(caller["path"])
    module = python_file.load(path)
    if caller["style"] == "kernelbench":
        problem = python_file.load(Path(caller["problem"]), caller["constants"])
        return kernelbench.callable_of(module, problem, caller["seed"], device)
    if caller["style"] == "gpu-mode":
        return gpu_mode.callable_of(module, caller["is_packed"])
    function: Any = getattr(module, caller["function"], None)
    if not callable(function):
        raise UsageError(f"{path.name} has no function {caller['function']!r}")
    return cast(Callable[..., Any], function)


@contextlib.contextmanager
def loading_inline(functions: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Has load_inline return a module with these functions, and build nothing."""

    def load_inline(*_: Any, **__: Any) -> SimpleNamespace:
        return SimpleNamespace(**functions)

    with patch.object(cpp_extension, "load_inline", load_inline):
        yield
