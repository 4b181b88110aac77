"""The functions of a user's as they run on the GPU. For workers."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from compare.pairs import callers, complaints, cuda_values
from compare.pairs.calls import FaultError
from compare.pairs.cuda_values import RefusalError, Value
from compare.pairs.tensor_trees import results


def make(side: Mapping[str, Any]) -> Callable[..., list[Tensor]]:
    """A function of the inputs that returns the tensors that the user's returned.

    It returns none if the user's returned nothing.

    Args:
        side: "caller", as `callers.make` takes it, or None where the only function of
            the library answers the calls; for CUDA the "library" (its path) and
            "functions" (by number name, place and is_kernel); and the user's "files".

    Raises:
        UsageError: The file has no such function.
        Exception: What the user's file raises.
    """
    caller = side["caller"]
    if caller is None:
        return functools.partial(_Library(side).run, 0)
    name = Path(caller["path"]).name
    if not side["library"]:
        return _flattened(callers.make(caller, "cuda"), name)
    library = _Library(side)
    function = callers.of_library(caller, side["functions"], library, "cuda")
    return _flattened(function, name)


def describe(error: Exception, side: Mapping[str, Any]) -> str:
    """What a user's function has raised, with its place."""
    if isinstance(error, FaultError | RefusalError):
        return str(error)
    return complaints.describe(error, [Path(each) for each in side["files"]])


def _flattened(function: Callable[..., Any], name: str) -> Callable[..., list[Tensor]]:
    def call(*inputs: Any) -> list[Tensor]:
        found = function(*inputs)
        return [] if found is None else [*results(found, name)]

    return call


class _Library:
    """A library that was compiled for the GPU."""

    def __init__(self, side: Mapping[str, Any]) -> None:
        """Loads it."""
        self._functions = side["functions"]
        self._library = ctypes.CDLL(side["library"])
        self._library.own_begin_call_on.argtypes = [ctypes.c_void_p]
        self._library.own_results.restype = ctypes.POINTER(Value)
        self._library.own_result_count.restype = ctypes.c_size_t
        self._library.own_keep.restype = ctypes.c_void_p
        self._library.own_drop.argtypes = [ctypes.c_void_p]
        for name in ("own_fault", "own_refusal"):
            getattr(self._library, name).restype = ctypes.c_char_p

    def run(self, function: int, *given: Any, **keywords: Any) -> list[Tensor]:
        """Calls a function on PyTorch's current stream.

        Raises:
            FaultError: A launch has failed.
            RefusalError: The function declines its arguments.
            UnavailableError: They cannot be passed on here.
        """
        known = self._functions[function]
        place = known["place"]
        arguments = cuda_values.completed(known["bound"], given, keywords)
        values, kept = cuda_values.from_python(arguments)
        self._library.own_begin_call_on(torch.cuda.current_stream().cuda_stream)
        status = self._library.own_call(
            ctypes.c_size_t(function), values, ctypes.c_size_t(len(arguments))
        )
        del kept  # not before the call is over
        if fault := self._library.own_fault().decode(errors="replace"):
            raise FaultError(f"{place}: {fault}")
        if status:
            refusal = self._library.own_refusal().decode(errors="replace")
            message = complaints.first_line(refusal) or "it raised an exception"
            raise RefusalError(f"{place}: {message}")
        found = self._library.own_results()
        n_found = self._library.own_result_count()
        owner = _Owner(self._library)
        return [_on_gpu(found[i], owner) for i in range(n_found)]

    def configure(self, grid: Sequence[int], block: Sequence[int], shared: int) -> None:
        """Sets what the next launch of a bare kernel takes."""
        triple = ctypes.c_uint * 3
        self._library.own_configure(
            triple(*grid), triple(*block), ctypes.c_ulong(shared)
        )


class _Owner:
    """Owns the memory of what a call has returned."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._owners = library.own_keep()

    def __del__(self) -> None:
        self._library.own_drop(self._owners)


def _on_gpu(value: Value, owner: _Owner) -> Tensor:
    """A tensor that C++ has returned, in the memory where it is.

    Raises:
        RefusalError: It is undefined, or of a dtype that is not known here.
    """
    dtype, shape, strides = cuda_values.returned(value)
    if 0 in shape:
        return torch.empty(shape, dtype=dtype, device="cuda")
    interface = {
        "shape": shape,
        "strides": tuple(each * dtype.itemsize for each in strides),
        "typestr": f"<i{dtype.itemsize}",  # bfloat16 has no code of its own
        "data": (value.address, False),
        "version": 3,
    }
    # The tensor keeps the holder alive, and that the owner of the memory.
    holder = SimpleNamespace(__cuda_array_interface__=interface, owner=owner)
    return torch.as_tensor(holder, device="cuda").view(dtype)
