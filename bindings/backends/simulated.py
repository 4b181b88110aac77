"""Compiled kernels on CPU tensors: what nvcc and Triton made of them, simulated.

    with bindings.simulated("sm_90a"):
        bindings.matmul(a, b, backend="triton")

TWIN_SIMULATE=sm_90a does so for a whole run. Unasked, Triton's kernels are simulated in
bfloat16 alone, which its interpreter gets wrong.

The simulator is a part of `compare`, which is built on this package. Here no module of
it is imported: the first call that needs one asks for it by name, so that arrows point
one way, and importing `bindings` costs what it did.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from bindings.errors import SettingError, UnsupportedError
from bindings.op import Op, Outputs, as_tuple
from bindings.torch_internals import Allocations

# Of those that have all that both languages use.
DEFAULT_ARCHITECTURE = "sm_90a"

_VARIABLE = "TWIN_SIMULATE"
_MODULE = "compare.code.simulated_calls"
_BACKENDS = ("cuda", "triton")

_asked: ContextVar[str] = ContextVar("asked", default="")


@contextlib.contextmanager
def simulated(architecture: str) -> Iterator[None]:
    """Has the backends cuda and triton simulate compiled kernels on CPU tensors.

    A backward runs where it is called: within such a block it is simulated as well.

    Args:
        architecture: What the kernels are compiled for: "sm_80", "sm_90a" and others
            that `python -m compare softmax --arch` knows.

    Raises:
        TypeError: The architecture is no string.
        ValueError: The architecture is unknown.
        UnsupportedError: There is no simulator here; the message says why.
    """
    if not isinstance(architecture, str):
        raise TypeError(
            f"simulated: architecture is {architecture!r}, expected a name as 'sm_90a'"
        )
    token = _asked.set(_target(architecture))
    try:
        yield
    finally:
        _asked.reset(token)


def architecture_for(backend: str, arguments: Iterable[object]) -> str | None:
    """What a call's kernels are compiled for; None if they are not simulated.

    Args:
        backend: The backend that is called.
        arguments: Of the call, the outputs among them.

    Raises:
        SettingError: TWIN_SIMULATE names no architecture.
        UnsupportedError: As `simulated`.
    """
    tensors = [each for each in arguments if isinstance(each, Tensor)]
    if backend not in _BACKENDS or any(each.is_cuda for each in tensors):
        return None
    if asked := _asked.get():
        return asked
    if setting := os.environ.get(_VARIABLE):
        try:
            return _target(setting)
        except ValueError as error:
            raise SettingError(f"{_VARIABLE}: {error}") from error
    is_bfloat16 = any(each.dtype == torch.bfloat16 for each in tensors)
    return DEFAULT_ARCHITECTURE if backend == "triton" and is_bfloat16 else None


def run(backend: str, architecture: str, op: Op, outputs: Outputs, *args: Any) -> None:
    """Runs the op's compiled kernels on args and writes its outputs.

    Raises:
        UnsupportedError: A compiler or the simulator is missing here, the simulator
            does not know an instruction, or the op's rung has no kernel for this call.
        BuildError: A compiler refused a kernel.
        RuntimeError: The kernel did what it must not, or does not end.
    """
    results = as_tuple(outputs)
    with Allocations() as allocations:
        arguments = op.arguments(*results, *args)
    given = {_memory(each) for each in args if isinstance(each, Tensor)}
    unwritten = [each for each in results if _memory(each) not in given]
    unwritten += allocations.untouched
    _simulator().run(backend, op, arguments, architecture, unwritten=unwritten)


def _memory(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


@functools.cache
def _target(architecture: str) -> str:
    """The architecture by the name that compilers have for it."""
    target: str = _simulator().target_of(architecture)
    return target


def _simulator() -> ModuleType:
    try:
        return importlib.import_module(_MODULE)
    except ImportError as error:
        raise UnsupportedError(
            f"compiled kernels cannot be simulated here: {error}"
        ) from error
