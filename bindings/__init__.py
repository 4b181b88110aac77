"""Every op behind one interface, whichever backend computes it.

    bindings.softmax(x, backend="cuda")         # the prebuilt extension
    bindings.softmax(x, backend="cuda_inline")  # the same sources by load_inline
    bindings.softmax(x, backend="triton")
    bindings.softmax(x, backend="torch")        # PyTorch's own, for reference

A CUDA tensor runs on its device and the current stream. A CPU tensor runs the CUDA
kernel in the emulator and the Triton kernel in Triton's interpreter, or, in bfloat16,
as Triton compiles it for sm_90a, in a simulator. Where one asks for an architecture,
both are compiled for it and simulated:

    with bindings.simulated("sm_80"):
        bindings.softmax(x, backend="cuda")

A backend that cannot serve a call raises and says why; none stands in for another. Ops
ignore autocast: they compute in the dtype they are given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from bindings.backends.simulated import simulated
from bindings.registry import FUNCTIONS

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Tensor]: ...


# The functions come from the files in bindings/ops, so a new op needs no edit here.
globals().update(FUNCTIONS)
__all__ = [*FUNCTIONS, "simulated"]
