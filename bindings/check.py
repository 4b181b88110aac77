"""Argument checks. Each message names the argument, its value, and valid values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bindings.op import DTYPES


def is_tensor(op: str, name: str, value: object) -> None:
    """Raises TypeError unless the value is a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{op}: {name} must be a torch.Tensor, got {type(value).__name__}"
        )


def is_optional_tensor(op: str, name: str, value: object) -> None:
    """Raises TypeError unless the value is a tensor or None."""
    if value is not None and not isinstance(value, Tensor):
        raise TypeError(
            f"{op}: {name} must be a torch.Tensor or None, got {type(value).__name__}"
        )


def is_number(op: str, name: str, value: object) -> None:
    """Raises TypeError unless the value is an int or a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{op}: {name} must be a number, got {type(value).__name__}")


def is_supported(op: str, name: str, x: Tensor) -> None:
    """Raises TypeError for a dtype or a storage that no kernel can read."""
    if x.dtype not in DTYPES:
        supported = ", ".join(str(dtype) for dtype in DTYPES)
        raise TypeError(
            f"{op}: {name} has dtype {x.dtype}, expected one of {supported}"
        )
    if x.layout != torch.strided:
        raise TypeError(f"{op}: {name} has layout {x.layout}, expected torch.strided")


def agree(op: str, x_name: str, x: Tensor, y_name: str, y: Tensor) -> None:
    """Raises unless both tensors have the same dtype and the same device."""
    if x.dtype != y.dtype:
        raise TypeError(
            f"{op}: {x_name} has dtype {x.dtype} and {y_name} has {y.dtype}, "
            "expected the same"
        )
    if x.device != y.device:
        raise ValueError(
            f"{op}: {x_name} is on {x.device} and {y_name} on {y.device}, "
            "expected the same device"
        )


def same_shape(op: str, x_name: str, x: Tensor, y_name: str, y: Tensor) -> None:
    """Raises ValueError unless both tensors have the same shape."""
    if x.shape != y.shape:
        raise ValueError(
            f"{op}: {x_name} has shape {tuple(x.shape)} and {y_name} has "
            f"{tuple(y.shape)}, expected the same"
        )


def dimension(op: str, name: str, dim: object, x: Tensor) -> int:
    """Returns dim counted from the front; raises unless x has it."""
    if isinstance(dim, bool) or not isinstance(dim, (int, torch.SymInt)):
        raise TypeError(f"{op}: {name} must be an int, got {type(dim).__name__}")
    n_dims = max(x.dim(), 1)
    if not -n_dims <= dim < n_dims:
        raise IndexError(
            f"{op}: {name} is {dim}, expected a value from {-n_dims} to {n_dims - 1} "
            f"for a tensor of {x.dim()} dimensions"
        )
    return int(dim) % n_dims


def dimensions(op: str, name: str, dims: object, x: Tensor) -> tuple[int, ...]:
    """Returns dims counted from the front, or all dimensions of x if dims is empty.

    One int stands for a sequence of one. Raises unless x has each dimension and each is
    named only once.
    """
    if isinstance(dims, (int, torch.SymInt)):
        return (dimension(op, name, dims, x),)
    if isinstance(dims, str) or not isinstance(dims, Sequence):
        raise TypeError(
            f"{op}: {name} must be an int or a sequence of ints, "
            f"got {type(dims).__name__}"
        )
    found = tuple(dimension(op, name, each, x) for each in dims)
    if len(set(found)) < len(found):
        raise ValueError(
            f"{op}: {name} is {tuple(dims)}, expected each dimension only once"
        )
    return found or tuple(range(x.dim()))


def is_bool(op: str, name: str, value: object) -> None:
    """Raises TypeError unless the value is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{op}: {name} must be a bool, got {type(value).__name__}")


def is_int(op: str, name: str, value: object) -> None:
    """Raises TypeError unless the value is an int."""
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):
        raise TypeError(f"{op}: {name} must be an int, got {type(value).__name__}")


def within(op: str, name: str, value: float, least: float, most: float) -> None:
    """Raises unless the value is a number from `least` to `most`, both included."""
    is_number(op, name, value)
    if not least <= value <= most:
        raise ValueError(
            f"{op}: {name} is {value}, expected a number from {least} to {most}"
        )


def one_of(op: str, name: str, value: object, choices: tuple[str | None, ...]) -> None:
    """Raises ValueError unless the value is one of the choices."""
    if value not in choices:
        expected = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{op}: {name} is {value!r}, expected one of {expected}")
