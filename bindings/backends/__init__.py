"""The backends: what runs an op on tensors that are checked and allocated."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from torch import Tensor

from bindings.op import Argument, Op, Outputs

NAMES = ("cuda", "cuda_inline", "triton", "torch")

# Does a launch again: takes the addresses of the tensors that it was recorded with, and
# the stream. For the current device, unchecked.
Launch = Callable[[Sequence[int], int], None]


def run(backend: str, op: Op, outputs: Outputs, *args: Any) -> None:
    """Writes the op of args into its outputs, by the backend of this name."""
    _module(backend).run(op, outputs, *args)


def record(
    backend: str,
    op: Op,
    arguments: tuple[Argument, ...],
    tensors: Sequence[Tensor],
    stream: int,
) -> Launch | None:
    """Does what the bare launcher does with its arguments, so that it can be repeated.

    Args:
        backend: Its name.
        op: What to launch.
        arguments: What the launcher takes.
        tensors: Those of a call, which are, or have as views, all of the arguments'.
        stream: The current one.

    Returns:
        What does so with other tensors of the same kind in place of these; None, and
        perhaps nothing was launched, if there is no such thing.
    """
    launch: Launch | None = _module(backend).record(op, arguments, tensors, stream)
    return launch


def _module(backend: str) -> ModuleType:
    # Imported by its first call, so that one that this machine cannot load stands in
    # nobody's way.
    return importlib.import_module(f"bindings.backends.{backend}")
