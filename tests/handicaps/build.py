"""Compiles the kernels of the bank, by the ways that the ops are compiled."""

from __future__ import annotations

import functools
import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from bindings.backends import native, prebuilt, triton
from bindings.op import Argument
from bindings.registry import OPS
from compare.code import cuda, kernel_code
from compare.code.architectures import ARCHITECTURES
from compare.code.kernel_code import KernelCode, Side
from handicaps.catalogue import Kernel

FOLDER = Path(__file__).parent
# Includes all others, so that one run of nvcc compiles all kernels.
EVERY = "every"


@functools.cache
def compiled(kernel: Kernel, side: Side, architecture: int) -> KernelCode:
    """The code of a kernel, made as that of the ops is."""
    tensors = [
        torch.empty(elements, dtype=dtype, device="meta")
        for elements, dtype in kernel.tensors
    ]
    arguments: tuple[Argument, ...] = (*tensors, *kernel.numbers)
    op = replace(OPS["add"], name=kernel.name)
    names = ["out", "x", "y"][: len(tensors)] + ["number"] * len(kernel.numbers)
    parameters = [(name, name == "out") for name in names]
    if side == "triton":
        with (
            patch.object(triton, "launcher", lambda op: _launcher(kernel)),
            patch.object(triton, "parameters", return_value=names),
        ):
            return kernel_code.inspect_triton(
                op, arguments, ARCHITECTURES[architecture]
            )
    plan = {
        "kernel": kernel.name,
        "signature": f"{kernel.name}()",
        "grid": kernel.grid,
        "block": (128, 1, 1),
        "shared_bytes": kernel.shared_bytes,
        "cluster": (1, 1, 1),
        "arguments": [
            native.address(i, each) if isinstance(each, torch.Tensor) else each
            for i, each in enumerate(arguments)
        ],
    }
    with (
        patch.object(prebuilt, "load"),
        patch.object(native, "plan", return_value=[plan]),
        patch.object(native, "parameters", return_value=parameters),
        patch.object(cuda, "CSRC", FOLDER / "cuda"),
    ):
        others = {
            each.stem: f"{each.stem}()" for each in (FOLDER / "cuda").glob("*.cu")
        }
        cuda.compile_kernels(EVERY, others, ARCHITECTURES[architecture])
        op = replace(op, forward=EVERY)  # which names its source
        return kernel_code.inspect_cuda(op, arguments, ARCHITECTURES[architecture])


def _launcher(kernel: Kernel) -> Any:
    module = importlib.import_module(f"handicaps.triton.{kernel.name}")
    function = getattr(module, kernel.name)

    def launch(*arguments: Any) -> None:
        function[kernel.grid](
            *arguments,
            num_warps=kernel.num_warps,
            maxnreg=kernel.max_registers,
            enable_fp_fusion=True,
        )

    return launch
