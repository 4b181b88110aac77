"""Arguments and results of a function in C++, as csrc/emulator/own/entry.h has them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from compare.errors import UnavailableError
from compare.pairs.cuda_bindings import python_value

# As c10::ScalarType counts them.
_DTYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.bool: 11,
    torch.bfloat16: 15,
}
_DTYPE_OF = {code: dtype for dtype, code in _DTYPES.items()}
# As own::Kind.
_NONE, _BOOLEAN, _INTEGER, _NUMBER, _TENSOR, _LIST = range(6)


class RefusalError(Exception):
    """Arguments are declined; the message says why, with its place where it has one."""


class Value(ctypes.Structure):
    """own::Value."""


Value._fields_ = [
    ("kind", ctypes.c_int32),
    ("dtype", ctypes.c_int32),
    ("integer", ctypes.c_int64),
    ("number", ctypes.c_double),
    ("address", ctypes.c_void_p),
    ("count", ctypes.c_int64),
    ("sizes", ctypes.POINTER(ctypes.c_int64)),
    ("strides", ctypes.POINTER(ctypes.c_int64)),
    ("items", ctypes.POINTER(Value)),
]


def completed(
    bound: Sequence[Mapping[str, str]],
    given: Sequence[Any],
    keywords: Mapping[str, Any],
) -> list[Any]:
    """All arguments: those given, then by keyword or by the defaults of a binding.

    Args:
        bound: What the binding says of the arguments, as cuda_bindings.BoundArgument.
        given: The first ones.
        keywords: Others, by name.

    Raises:
        RefusalError: There is no such keyword.
        UnavailableError: A default is no literal.
    """
    arguments, left = [*given], {**keywords}
    for each in bound[len(given) :]:
        name, default = each["name"], each["default"]
        if name in left:
            arguments.append(left.pop(name))
        elif default:
            try:
                arguments.append(python_value(default))
            except ValueError as error:
                raise UnavailableError(f"the default of {name}: {error}") from error
        else:
            break
    if left:
        raise RefusalError(f"its binding names no such argument: {', '.join(left)}")
    return arguments


def from_python(arguments: Sequence[Any]) -> tuple[Any, list[Any]]:
    """An array of values, and what has to live as long as they do.

    Raises:
        RefusalError: C++ gets no values of this type here.
    """
    kept: list[Any] = []
    return _array(arguments, kept), kept


def to_python(value: Value) -> Tensor:
    """A copy of a tensor in the CPU's memory that C++ has returned.

    Raises:
        RefusalError: It is of a dtype that is not known here, or there is none.
    """
    dtype, shape, strides = returned(value)
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    memory = (ctypes.c_char * ((1 + last) * dtype.itemsize)).from_address(value.address)
    return torch.frombuffer(memory, dtype=dtype).as_strided(shape, strides).clone()


def returned(value: Value) -> tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]:
    """The dtype, shape and strides, in elements, of a tensor that C++ has returned.

    Raises:
        RefusalError: It is of a dtype that is not known here, or there is none.
    """
    if value.kind != _TENSOR or value.dtype not in _DTYPE_OF:
        raise RefusalError("the function returns a tensor that is undefined or complex")
    shape = tuple(value.sizes[i] for i in range(value.count))
    strides = tuple(value.strides[i] for i in range(value.count))
    return _DTYPE_OF[value.dtype], shape, strides


def launch_shape(launch: Any) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Grid, block and bytes of shared memory of `run[grid, block, shared_bytes]`.

    Raises:
        TypeError: Something else stands between the brackets.
        ValueError: A grid or block has more than three sizes, or negative ones.
    """
    if not isinstance(launch, tuple) or not 2 <= len(launch) <= 3:
        raise TypeError("write run[grid, block] or run[grid, block, shared_bytes]")
    grid, block, *shared = launch
    return _triple(grid), _triple(block), shared[0] if shared else 0


def _triple(sizes: Any) -> tuple[int, ...]:
    sizes = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if len(sizes) > 3:
        raise ValueError(f"a grid or block has up to three sizes, not {sizes}")
    numbers = [int(each) for each in sizes]
    if not all(0 <= each < 1 << 32 for each in numbers):
        raise ValueError(f"a grid or block has sizes from 0, not {sizes}")
    return (*numbers, 1, 1, 1)[:3]


def _array(items: Sequence[Any], kept: list[Any]) -> Any:
    array = (Value * max(1, len(items)))(*(_value(each, kept) for each in items))
    kept.append(array)
    return array


def _value(argument: Any, kept: list[Any]) -> Value:
    if argument is None:
        return Value(kind=_NONE)
    if isinstance(argument, bool):
        return Value(kind=_BOOLEAN, integer=argument)
    if isinstance(argument, int):
        return Value(kind=_INTEGER, integer=argument)
    if isinstance(argument, float):
        return Value(kind=_NUMBER, number=argument)
    if isinstance(argument, (list, tuple)):
        items = _array(argument, kept)
        return Value(kind=_LIST, count=len(argument), items=items)
    if not isinstance(argument, Tensor) or argument.dtype not in _DTYPES:
        what = getattr(argument, "dtype", type(argument).__name__)
        raise RefusalError(f"C++ gets no value of type {what} here")
    numbers = ctypes.c_int64 * max(1, argument.dim())
    sizes, strides = numbers(*argument.shape), numbers(*argument.stride())
    kept += [sizes, strides, argument]
    return Value(
        kind=_TENSOR,
        dtype=_DTYPES[argument.dtype],
        address=argument.data_ptr(),
        count=argument.dim(),
        sizes=sizes,
        strides=strides,
    )
