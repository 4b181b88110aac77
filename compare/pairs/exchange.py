"""Values and tensors in one file, between processes that do not trust each other.

The file holds the length of a header, the header in JSON, and after it the bytes of the
tensors and byte strings, in the order in which the header names them. It is not a
pickle, because to read a pickle is to run what its writer chose.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import torch

_LENGTH_BYTES = 8
# A header of numbers and names; what is large is in the tensors.
_LONGEST_HEADER = 256 << 20


class ExchangeError(Exception):
    """A value has no place in such a file, or a file is not one of these."""


def write(value: Any, path: Path) -> None:
    """Writes a value.

    Args:
        value: None, a bool, int, float, str or bytes, a tensor, or a list, a tuple or a
            dict with str keys of these.
        path: The file, which is replaced if it exists.

    Raises:
        ExchangeError: If a part of the value is something else.
    """
    blobs: list[Any] = []
    try:
        header = json.dumps(_encode(value, blobs)).encode("ascii")
    except RecursionError:
        raise ExchangeError("the value is nested too deeply, or holds itself") from None
    except ValueError as error:  # an integer of more than 4300 digits
        raise ExchangeError(str(error)) from None
    with path.open("wb") as file:
        file.write(len(header).to_bytes(_LENGTH_BYTES, "little"))
        file.write(header)
        for blob in blobs:
            file.write(blob)


def _encode(value: Any, blobs: list[Any]) -> Any:
    """Returns the value as JSON, where an object's only key says what it stands for."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        blobs.append(value)
        return {"bytes": len(value)}
    if isinstance(value, list | tuple):
        return [_encode(each, blobs) for each in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ExchangeError("a dict has keys that are not strings")
        return {"dict": {key: _encode(each, blobs) for key, each in value.items()}}
    # Without torch in the process there can be no tensor; to import it takes seconds.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        blobs.append(_bytes_of(value))
        dtype = str(value.dtype).removeprefix("torch.")
        return {"tensor": [dtype, list(value.shape)]}
    raise ExchangeError(f"a {type(value).__name__} cannot be passed to another process")


def _bytes_of(tensor: torch.Tensor) -> Any:
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        raise ExchangeError("sparse, quantized and meta tensors cannot be passed on")
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy()


def read(path: Path) -> Any:
    """Reads a value; tuples come back as lists, tensors contiguous and on the CPU.

    Whatever the file holds, it takes no more memory than a few times the file's size.

    Raises:
        ExchangeError: If the file is not one that `write` has written.
    """
    try:
        with path.open("rb") as file:
            header = _read_header(file)
            value = _decode(header, file)
            if file.read(1):
                raise ExchangeError("bytes are left at the end")
    except RecursionError:
        raise ExchangeError("the header is nested too deeply") from None
    return value


def _read_header(file: BinaryIO) -> Any:
    length = int.from_bytes(_read_exactly(file, _LENGTH_BYTES), "little")
    if length > _LONGEST_HEADER:
        raise ExchangeError("the header is too long")
    try:
        return json.loads(_read_exactly(file, length))
    except ValueError:
        raise ExchangeError("the header is not JSON") from None


def _remaining(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size - file.tell()


def _read_exactly(file: BinaryIO, n_bytes: int) -> bytes:
    # The size is compared first: a header may ask for more bytes than there is memory.
    if n_bytes > _remaining(file):
        raise ExchangeError("the file is shorter than it says")
    return file.read(n_bytes)


def _decode(header: Any, file: BinaryIO) -> Any:
    if isinstance(header, list):
        return [_decode(each, file) for each in header]
    if not isinstance(header, dict):
        return header
    if len(header) != 1:
        raise ExchangeError("an object of the header has not one key")
    ((kind, content),) = header.items()
    if kind == "dict" and isinstance(content, dict):
        return {key: _decode(each, file) for key, each in content.items()}
    if kind == "bytes" and _is_size(content):
        return _read_exactly(file, content)
    if kind == "tensor" and isinstance(content, list) and len(content) == 2:
        return _read_tensor(content[0], content[1], file)
    raise ExchangeError("the header names a kind of value that there is not")


def _is_size(value: Any) -> bool:
    return type(value) is int and value >= 0  # a bool is an int too


def _read_tensor(dtype: Any, shape: Any, file: BinaryIO) -> torch.Tensor:
    import torch

    torch_dtype = getattr(torch, dtype, None) if isinstance(dtype, str) else None
    if not isinstance(torch_dtype, torch.dtype):
        raise ExchangeError("a tensor is of a dtype that there is not")
    if not isinstance(shape, list) or not all(map(_is_size, shape)):
        raise ExchangeError("a tensor's shape is not one")
    n_bytes = math.prod(shape) * torch_dtype.itemsize
    if n_bytes > _remaining(file):
        raise ExchangeError("a tensor is larger than the file")
    content = torch.empty(n_bytes, dtype=torch.uint8, device="cpu")
    if file.readinto(content.numpy()) != n_bytes:  # type: ignore[attr-defined]
        raise ExchangeError("the file is shorter than it says")
    try:
        tensor = content.view(torch_dtype).reshape(shape)
    except (RuntimeError, TypeError):
        # Of shapes without elements whose strides overflow, for example.
        raise ExchangeError("a tensor is of no dtype and shape that there is") from None
    if tensor.is_quantized:  # it has no scale
        raise ExchangeError("a tensor is quantized")
    return tensor
