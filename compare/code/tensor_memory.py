"""The memory of a call's tensors on the CPU, as its simulated kernels see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from compare.code.launch_parameters import extent
from compare.ptx_simulator import Buffer, TensorArgument

# Each range of addresses begins at a multiple of this many bytes, and as far behind it
# as the tensor does. PyTorch aligns what it allocates on the CPU to no more.
_ALIGNMENT = 64
# Ranges are so many bytes apart: an address out of bounds is in no other.
_APART = 1 << 44


@dataclass
class _Range:
    """Bytes in a row that tensors share."""

    name: str  # of the first tensor in it
    position: int  # of that tensor among all
    start: int  # where it really lies
    end: int
    tensors: list[Tensor] = field(default_factory=list)


class TensorMemory:
    """Real memory at addresses that are made up: what tensors share they share there.

    Attributes:
        buffers: What kernels can read and write.
    """

    def __init__(
        self, named: Sequence[tuple[str, Tensor]], unwritten: Iterable[Tensor]
    ) -> None:
        """Places tensors that are on the CPU.

        Args:
            named: All that a kernel may get, and what messages call them.
            unwritten: Tensors that were allocated and not written to. What shares
                memory with one of them is unwritten, too.
        """
        self._ranges = _ranges(named)
        storages = {_storage(each) for each in unwritten}
        self.buffers = tuple(
            Buffer(
                name=each.name,
                address=_made_up(number, each),
                content=_bytes(each),
                written=np.zeros(each.end - each.start, np.bool_)
                if _storage(each.tensors[0]) in storages
                else None,
            )
            for number, each in enumerate(self._ranges)
        )

    def address(self, tensor: Any) -> int:
        """The address that stands for where a tensor begins, or what has a data_ptr."""
        place = int(tensor.data_ptr())
        for number, each in enumerate(self._ranges):
            if each.start <= place < each.end:
                return _made_up(number, each) + place - each.start
        return 0  # of a tensor without elements

    def passed(self, parameters: Sequence[int]) -> tuple[TensorArgument, ...]:
        """Those ranges that a parameter points into."""
        return tuple(
            TensorArgument(
                name=buffer.name,
                position=each.position,
                address=buffer.address,
                bytes=buffer.content.size,
            )
            for buffer, each in zip(self.buffers, self._ranges, strict=True)
            if any(buffer.address <= each < buffer.end for each in parameters)
        )


def _ranges(named: Sequence[tuple[str, Tensor]]) -> list[_Range]:
    """The memory of all tensors, those that overlap together, in their order."""
    alone = [
        _Range(name, position, tensor.data_ptr(), tensor.data_ptr() + size, [tensor])
        for position, (name, tensor) in enumerate(named)
        if (size := extent(tensor))
    ]
    found: list[_Range] = []
    for each in sorted(alone, key=lambda each: each.start):
        if not found or each.start >= found[-1].end:
            found.append(each)
            continue
        last = found[-1]
        if each.position < last.position:
            last.name, last.position = each.name, each.position
        last.end = max(last.end, each.end)
        last.tensors += each.tensors
    return sorted(found, key=lambda each: each.position)


def _made_up(number: int, memory: _Range) -> int:
    return (number + 1) * _APART + memory.start % _ALIGNMENT


def _bytes(memory: _Range) -> npt.NDArray[np.uint8]:
    """The real memory, as bytes."""
    storage = memory.tensors[0].untyped_storage()
    whole: npt.NDArray[np.uint8] = (
        torch.tensor([], dtype=torch.uint8).set_(storage).numpy()
    )
    first = memory.start - storage.data_ptr()
    return whole[first : first + memory.end - memory.start]


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
