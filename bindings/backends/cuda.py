"""The prebuilt extension: CUDA C++ on the GPU, and in the emulator for CPU tensors."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from bindings.backends import native, prebuilt
from bindings.op import Op


def run(op: Op, out: Tensor, *args: Any) -> None:
    """Writes the op of args into out."""
    native.run(prebuilt.load("_cuda" if out.is_cuda else "_cpu"), op, out, *args)
