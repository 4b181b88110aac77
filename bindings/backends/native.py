"""Calls the launchers of a native module, prebuilt or built inline."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from bindings.backends import Launch
from bindings.backends.prebuilt import REBUILD_COMMAND
from bindings.backends.template import template_of
from bindings.errors import BuildError, UnsupportedError
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
    """Calls the bare launcher: on the current device, unchecked.

    Raises:
        UnsupportedError: The op's rung has no kernel for this call.
    """
    with _naming_the_rung(op):
        _bound(module, op)(*_values(arguments, address), stream)


def _bound(module: ModuleType, op: Op, suffix: str = "") -> Any:
    """What a module has under the launcher's name and a suffix.

    Raises:
        BuildError: There is no launcher of that name.
    """
    found = getattr(module, op.launcher + suffix, None)
    if found is None:
        raise BuildError(
            f"csrc/{op.source}/{op.source}.cu defines no launcher {op.launcher!r}: "
            f"write cudaError_t {op.launcher}(const Launcher& launch, DType dtype, "
            f"..., int rung) in no namespace, and build again: {REBUILD_COMMAND}"
        )
    return found


@contextlib.contextmanager
def _naming_the_rung(op: Op) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if op.rung and str(error).endswith(": operation not supported"):
            raise UnsupportedError(unsupported_rung(op)) from error
        raise


def unsupported_rung(op: Op) -> str:
    """The message for a requested rung that cannot serve a call."""
    return f"{op.name}: the rung {op.rung!r} has no kernel for this call"


def record(
    module: ModuleType,
    op: Op,
    arguments: tuple[Argument, ...],
    tensors: Sequence[Tensor],
    stream: int,
) -> Launch | None:
    """Launches, and returns a function that repeats it, as in bindings.backends."""
    code = _CODES[tensors[0].dtype]
    template = template_of(
        [code, *(0 if each is None else each for each in arguments)], tensors
    )
    if template is None:
        return None
    launch: Launch = _bound(module, op, "_replay")(
        *template.values, list(template.places)
    )
    launch([x.data_ptr() for x in tensors], stream)
    return launch


def address(position: int, tensor: Tensor) -> int:
    """The address of a tensor among a launcher's arguments, made up on the meta device.

    Tensors on the meta device have no memory. Their addresses are far apart, and
    aligned like those of real tensors, whose storage always is.
    """
    if not tensor.is_meta:
        return tensor.data_ptr()
    offset = int(tensor.storage_offset()) * tensor.element_size()
    return ((position + 1) << 44) + offset


def plan(
    module: ModuleType,
    op: Op,
    arguments: tuple[Argument, ...],
    arch: int,
    address_of: Callable[[int, Tensor], int] = address,
) -> list[dict[str, Any]]:
    """Describes what `launch` would launch on an architecture, such as 90.

    Args:
        module: One that runs kernels in the emulator.
        op: The op to launch.
        arguments: The launcher's arguments.
        arch: The architecture.
        address_of: Tells the address of a tensor among them, by its position.

    Raises:
        UnsupportedError: The op's rung has no kernel for this call.

    Returns:
        For each launch, in order: kernel (the symbol), signature (the symbol
        demangled), grid, block and cluster (x, y, z), shared_bytes (dynamic shared
        memory), and arguments (the kernel's: each tensor as its address, each structure
        as the numbers that the sources give for it, an address first).
    """
    values = _values(arguments, address_of)
    with _naming_the_rung(op):
        descriptions: list[dict[str, Any]] = _bound(module, op, "_plan")(*values, arch)
    return descriptions


def parameters(module: ModuleType, op: Op) -> list[tuple[str, bool]]:
    """Names of the bare launcher's parameters, and whether it writes through each."""
    found: list[tuple[str, bool]] = _bound(module, op, "_parameters")
    return found


def _values(
    arguments: tuple[Argument, ...], address_of: Callable[[int, Tensor], int]
) -> list[int | float]:
    out = arguments[0]
    assert isinstance(out, Tensor)
    values: list[int | float] = [_CODES[out.dtype]]
    for position, each in enumerate(arguments):
        if isinstance(each, Tensor):
            values.append(address_of(position, each))
        else:
            values.append(0 if each is None else each)  # the null pointer
    return values
