"""Triton on the GPU, and in Triton's interpreter for CPU tensors."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from bindings.backends import interpreter
from bindings.op import Op, Outputs, as_tuple


def run(op: Op, outputs: Outputs, *args: Any) -> None:
    """Writes the op of args into its outputs.

    Raises:
        RuntimeError: bfloat16 on the CPU, which the interpreter gets wrong.
    """
    out, *others = as_tuple(outputs)
    arguments = op.arguments(out, *others, *args)
    if not out.is_cuda:
        interpreter.run(op.name, arguments, source=op.source)
        return
    # Triton launches on the current device, whatever device its tensors are on.
    with torch.cuda.device(out.device):
        launcher(op)(*arguments)


def launcher(op: Op) -> Any:
    """The bare launcher: on the current device and stream, unchecked."""
    return getattr(importlib.import_module(f"triton_kernels.{op.source}"), op.name)
