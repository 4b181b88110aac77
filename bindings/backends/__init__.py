"""The backends: what runs an op on tensors that are checked and allocated."""

from __future__ import annotations

import importlib
from typing import Any

from bindings.op import Op, Outputs

NAMES = ("cuda", "cuda_inline", "triton", "torch")


def run(backend: str, op: Op, outputs: Outputs, *args: Any) -> None:
    """Writes the op of args into its outputs, by the backend of this name.

    A backend is imported by its first call, so that one that this machine cannot load
    stands in nobody's way.
    """
    importlib.import_module(f"bindings.backends.{backend}").run(op, outputs, *args)
