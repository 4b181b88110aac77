"""What tensors hold: with it a kernel computes, and changes them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from compare.ptx_simulator.bytes import gather, scatter
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.spaces import Part
from compare.ptx_simulator.values import (
    BOOL,
    Bits,
    Dtype,
    Known,
    Lanes,
    Mask,
    PtxType,
    Value,
    unknown,
)


@dataclass(frozen=True)
class Buffer:
    """The memory of a tensor."""

    name: str  # as that of the launch's tensor
    address: int  # of its first byte, as the launch has it
    content: Bits  # its bytes, of which stores change some
    # By byte, whether it was written, which stores change; None if all of them were.
    written: Mask | None = None

    @property
    def end(self) -> int:
        """The address behind its last byte."""
        return self.address + self.content.size


class Contents:
    """All memory that a launch can read and write, other than that of its blocks.

    It is a `Storage` without owners.
    """

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        """Keeps the buffers, which do not overlap in addresses."""
        self.buffers = tuple(sorted(buffers, key=lambda each: each.address))

    def beside(self, buffers: Sequence[Buffer]) -> "Contents":
        """These and other buffers."""
        return Contents([*self.buffers, *buffers])

    def load(self, part: Part, offset: int, kind: PtxType) -> Value:
        """The numbers that lie so many bytes behind the addresses of some lanes."""
        if part.addresses is None or kind.dtype is None:
            return unknown(BOOL)
        bits, known = self.load_at(part.behind(offset), kind.dtype)
        return Value(kind.numbers(bits), known)

    def load_at(self, addresses: Lanes, dtype: Dtype) -> Value:
        """The numbers at addresses; unknown where nothing was written, or is."""
        found: Bits = np.zeros(0, dtype)
        known = np.zeros(0, np.bool_)
        for buffer, chosen, places in self._located(addresses, dtype.itemsize):
            bits = gather(buffer.content, places, dtype)
            is_known = _are_written(buffer, places, dtype)
            if chosen is None:
                return Value(bits, is_known)
            if not found.size:
                found = np.zeros(addresses.size, dtype)
                known = np.zeros(addresses.size, np.bool_)
            found[chosen], known[chosen] = bits, is_known
        return Value(found, known) if found.size else unknown(dtype)

    def store(self, group: Group, addresses: Lanes, value: Value, dtype: Dtype) -> None:
        """Stores a value; where lanes store different ones at one place, one stays."""
        self.store_at(addresses, value, dtype)

    def store_at(self, addresses: Lanes, value: Value, dtype: Dtype) -> None:
        """Stores numbers at addresses; out of bounds, none."""
        for buffer, chosen, places in self._located(addresses, dtype.itemsize):
            bits, known = value.bits.astype(dtype, copy=False), value.known
            if chosen is not None:
                bits = np.broadcast_to(bits, chosen.size)[chosen]
                known = np.broadcast_to(known, chosen.size)[chosen]
            changes = [(buffer.content, bits)]
            if buffer.written is not None:
                marks = np.ones(dtype.itemsize, np.bool_).view(dtype)
                is_known = np.where(known, marks, np.zeros(1, dtype))
                changes.append((buffer.written, is_known))
            scatter(places, dtype, *changes)

    def forget(self, part: Part, size: int) -> None:
        """Nothing: what writes something unknown has been told where it was done."""

    def outside(self, addresses: Lanes, sizes: Lanes | int) -> Mask | None:
        """Which of these ranges no buffer holds whole; None if there are none."""
        most = int(np.max(sizes))  # of most accesses all have as many bytes
        buffer = self._at(int(addresses.min()))
        if buffer and int(addresses.max()) + most <= buffer.end:
            return None
        last = addresses + sizes
        outside = np.ones(addresses.shape, np.bool_)
        for buffer in self.buffers:
            outside &= (addresses < buffer.address) | (last > buffer.end)
        return outside if outside.any() else None

    def _located(
        self, addresses: Lanes, size: int
    ) -> Iterator[tuple[Buffer, Mask | None, Lanes]]:
        """Each buffer, the lanes whose numbers it holds, and where; None: all lanes."""
        first, last = int(addresses.min()), int(addresses.max())
        buffer = self._at(first)
        if buffer and last + size <= buffer.end:
            yield buffer, None, addresses - buffer.address
            return
        for buffer in self.buffers:
            inside = (addresses >= buffer.address) & (addresses + size <= buffer.end)
            if inside.any():
                yield buffer, inside, addresses[inside] - buffer.address

    def _at(self, address: int) -> Buffer | None:
        found = (b for b in self.buffers if b.address <= address < b.end)
        return next(found, None)


def _are_written(buffer: Buffer, places: Lanes, dtype: Dtype) -> Known:
    """Whether something was written to the numbers at these places of a buffer."""
    if buffer.written is None:
        return True
    ones = np.ones(dtype.itemsize, np.bool_).view(dtype)
    known: Mask = gather(buffer.written, places, dtype) == ones
    return bool(known.all()) or known
