"""Calling the launchers of a native module, whoever built it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from bindings.op import Argument, Op, Outputs, as_tuple

_CODES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}  # DType in dtype.cuh


def run(module: ModuleType, op: Op, outputs: Outputs, *args: Any) -> None:
    """Launches the op on its outputs' device and the current stream there."""
    out, *others = as_tuple(outputs)
    arguments = op.arguments(out, *others, *args)
    if out.is_cuda:
        with torch.cuda.device(out.device):
            stream = torch.cuda.current_stream(out.device).cuda_stream
            launch(module, op, arguments, stream)
    else:
        launch(module, op, arguments, 0)


def launch(
    module: ModuleType, op: Op, arguments: tuple[Argument, ...], stream: int
) -> None:
    """The bare launcher: on the current device, unchecked."""
    getattr(module, op.name)(*_values(arguments), stream)


def plan(
    module: ModuleType, op: Op, arguments: tuple[Argument, ...], arch: int
) -> dict[str, Any]:
    """What `launch` would do on an architecture, such as 90, without doing it.

    Returns:
        kernel (the symbol), signature (the same demangled), grid and block (x, y, z),
        and shared_bytes (dynamic shared memory).
    """
    description: dict[str, Any] = getattr(module, f"{op.name}_plan")(
        *_values(arguments), arch
    )
    return description


def _values(arguments: tuple[Argument, ...]) -> list[int | float]:
    out = arguments[0]
    assert isinstance(out, Tensor)
    values: list[int | float] = [_CODES[out.dtype]]
    for argument in arguments:
        # A tensor on the meta device has no memory; its offset stands for the address.
        if not isinstance(argument, Tensor):
            values.append(argument)
        elif argument.is_meta:
            values.append(int(argument.storage_offset()) * argument.element_size())
        else:
            values.append(argument.data_ptr())
    return values
