"""The prebuilt extension: CUDA C++ on the GPU; for CPU tensors in the emulator.

Where it is asked for, what nvcc makes of it is simulated instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from torch import Tensor

from bindings.backends import Launch, native, prebuilt, simulated
from bindings.op import Argument, Op, Outputs, as_tuple


def run(op: Op, outputs: Outputs, *args: Any) -> None:
    """Runs the op on args and writes its outputs."""
    results = as_tuple(outputs)
    if architecture := simulated.architecture_for("cuda", (*results, *args)):
        simulated.run("cuda", architecture, op, outputs, *args)
    else:
        native.run(_module(results[0]), op, outputs, *args)


def record(
    op: Op, arguments: tuple[Argument, ...], tensors: Sequence[Tensor], stream: int
) -> Launch | None:
    """Launches, and returns a function that repeats the launch."""
    return native.record(_module(tensors[0]), op, arguments, tensors, stream)


def _module(out: Tensor) -> ModuleType:
    return prebuilt.load("_cuda" if out.is_cuda else "_cpu")
