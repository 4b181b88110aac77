"""Triton on the GPU, and in Triton's interpreter for CPU tensors."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from bindings.backends import interpreter
from bindings.op import Op


def run(op: Op, out: Tensor, *args: Any) -> None:
    """Writes the op of args into out.

    Raises:
        RuntimeError: bfloat16 on the CPU, which the interpreter gets wrong.
    """
    arguments = op.arguments(out, *args)
    if not out.is_cuda:
        interpreter.run(op.name, arguments, source=op.source)
        return
    # Triton launches on the current device, whatever device its tensors are on.
    with torch.cuda.device(out.device):
        launcher(op)(*arguments)


def launcher(op: Op) -> Any:
    """The bare launcher: on the current device and stream, unchecked."""
    return getattr(importlib.import_module(f"triton_kernels.{op.source}"), op.name)
