"""The backends, which run ops on tensors that are checked and allocated."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from torch import Tensor

from bindings.op import Argument, Op, Outputs

NAMES = ("cuda", "cuda_inline", "triton", "torch")

# Repeats a recorded launch on the current device, unchecked. Takes an address for each
# tensor that the launch was recorded with, and the stream.
Launch = Callable[[Sequence[int], int], None]


def run(backend: str, op: Op, outputs: Outputs, *args: Any) -> None:
    """Runs the op on args with the named backend and writes its outputs."""
    _module(backend).run(op, outputs, *args)


def record(
    backend: str,
    op: Op,
    arguments: tuple[Argument, ...],
    tensors: Sequence[Tensor],
    stream: int,
) -> Launch | None:
    """Launches as the bare launcher does, and records it so that it can be repeated.

    Args:
        backend: The backend's name.
        op: The op to launch.
        arguments: The launcher's arguments.
        tensors: The tensors of a call. Each tensor in arguments is one of them, or a
            view of one.
        stream: The current stream.

    Returns:
        A function that repeats the launch with other tensors of the same kind in place
        of these; None if it cannot be repeated, and then perhaps nothing was launched.
    """
    launch: Launch | None = _module(backend).record(op, arguments, tensors, stream)
    return launch


def _module(backend: str) -> ModuleType:
    # Imported by its first call, so that a backend that this machine cannot load does
    # not affect the others.
    return importlib.import_module(f"bindings.backends.{backend}")
