"""Arguments and results of a function in C++, as csrc/emulator/own/entry.h has them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

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


def from_python(arguments: Sequence[Any]) -> tuple[Any, list[Any]]:
    """An array of values, and what has to live as long as they do.

    Raises:
        RefusalError: C++ gets no values of this type here.
    """
    kept: list[Any] = []
    return _array(arguments, kept), kept


def to_python(value: Value) -> Tensor:
    """A copy of a tensor that C++ has returned.

    Raises:
        RefusalError: It is of a dtype that is not known here, or there is none.
    """
    if value.kind != _TENSOR or value.dtype not in _DTYPE_OF:
        raise RefusalError("the function returns a tensor that is undefined or complex")
    dtype = _DTYPE_OF[value.dtype]
    shape = [value.sizes[i] for i in range(value.count)]
    strides = [value.strides[i] for i in range(value.count)]
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    memory = (ctypes.c_char * ((1 + last) * dtype.itemsize)).from_address(value.address)
    return torch.frombuffer(memory, dtype=dtype).as_strided(shape, strides).clone()


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
