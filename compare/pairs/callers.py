"""The Python function that a worker calls: the user's own, a solution, a submission."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol, cast
from unittest.mock import patch

from torch import Tensor
from torch.utils import cpp_extension

from compare.errors import UsageError
from compare.pairs import cuda_values, gpu_mode, kernelbench, python_file


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


class Library(Protocol):
    """The functions of a .cu, compiled for the emulator or for a GPU."""

    def run(self, function: int, *given: Any, **keywords: Any) -> list[Tensor]:
        """Calls one, by its number."""

    def configure(self, grid: Sequence[int], block: Sequence[int], shared: int) -> None:
        """Sets what the next launch of a bare kernel takes."""


def of_library(
    caller: Mapping[str, Any],
    functions: Sequence[Mapping[str, Any]],
    library: Library,
    device: str | None = None,
) -> Callable[..., Any]:
    """The Python function that calls those of a library: `launch`, or a solution.

    Args:
        caller: As `make` takes it, or of style "launch" with the description's path.
        functions: By number their name, and whether it is a kernel.
        library: What has them.
        device: As `make` takes it.

    Raises:
        Exception: What the user's file raises.
    """
    if caller["style"] == "launch":
        is_kernel = functions[0]["is_kernel"]
        run = _Kernel(library) if is_kernel else functools.partial(library.run, 0)
        launch: Any = python_file.load(Path(caller["path"])).launch
        return functools.partial(launch, run)
    built = {
        each["name"]: _as_built_inline(library, number)
        for number, each in enumerate(functions)
    }
    with loading_inline(built):
        return make(caller, device)


class _Kernel:
    """A bare kernel, launched as `run[grid, block, shared_bytes](…)`."""

    def __init__(self, library: Library) -> None:
        """Launches the first function of a library."""
        self._library = library

    def __getitem__(self, launch: Any) -> Callable[..., list[Tensor]]:
        """The kernel with its grid and block, each an int or up to three."""
        self._library.configure(*cuda_values.launch_shape(launch))
        return functools.partial(self._library.run, 0)


def _as_built_inline(library: Library, number: int) -> Callable[..., Any]:
    """A function as it is in the module that load_inline returns."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        found = library.run(number, *arguments, **keywords)
        return found[0] if len(found) == 1 else found or None

    return call


@contextlib.contextmanager
def loading_inline(functions: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Has load_inline return a module with these functions, and build nothing."""

    def load_inline(*_: Any, **__: Any) -> SimpleNamespace:
        return SimpleNamespace(**functions)

    with patch.object(cpp_extension, "load_inline", load_inline):
        yield
