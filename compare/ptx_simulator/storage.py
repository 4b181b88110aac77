"""Memory whose content is followed as far as it is known: shared and local."""

from collections.abc import Callable

import numpy as np

from compare.ptx_simulator.group import Group
from compare.ptx_simulator.spaces import Part
from compare.ptx_simulator.values import (
    BOOL,
    U8,
    Dtype,
    Lanes,
    Mask,
    PtxType,
    Value,
    unknown,
)


class Storage:
    """Bytes of several owners: blocks, or threads.

    Nothing is allocated before something known is stored: what kernels mostly keep
    there is floating point, and unknown.
    """

    def __init__(
        self, owners: int, size: int, owners_of: Callable[[Group], Lanes]
    ) -> None:
        """Makes so many bytes for each owner, all of them unknown.

        Args:
            owners: how many there are.
            size: the bytes of each.
            owners_of: for each lane of a group the owner of what it accesses.
        """
        self._owners = owners
        self._size = size
        self._owners_of = owners_of
        self._bytes, self._known = np.zeros(0, U8), np.zeros(0, np.bool_)

    @property
    def is_blank(self) -> bool:
        """Whether nothing known was ever stored."""
        return not self._known.size

    def load(self, part: Part, offset: int, kind: PtxType) -> Value:
        """The numbers that lie so many bytes behind the addresses of some lanes."""
        if self.is_blank or part.addresses is None or kind.dtype is None:
            return unknown(BOOL)
        places, inside = self._places(part.group, part.addresses + offset, kind.bytes)
        content = np.ascontiguousarray(self._bytes[places])
        known = self._known[places].all(axis=1) & inside
        return Value(kind.numbers(content.view(kind.dtype).reshape(-1)), known)

    def store(self, group: Group, addresses: Lanes, value: Value, dtype: Dtype) -> None:
        """Stores a value; where lanes store different ones at one place, none."""
        if self.is_blank:
            if not np.any(value.known):
                return
            self._bytes = np.zeros(self._owners * self._size, U8)
            self._known = np.zeros(self._owners * self._size, np.bool_)
        places, inside = self._places(group, addresses, dtype.itemsize)
        count = len(places)
        bits = np.broadcast_to(value.bits.astype(dtype, copy=False), count)
        content = np.ascontiguousarray(bits).view(U8).reshape(count, -1)[inside]
        known = np.broadcast_to(value.known, count)[inside]
        places = places[inside]
        self._bytes[places] = content
        self._known[places] = True
        lost = (self._bytes[places] != content) | ~known[:, np.newaxis]
        self._known[places[lost]] = False

    def forget(self, part: Part, size: int) -> None:
        """Something unknown is written there, or who knows where."""
        if self.is_blank:
            return
        if part.addresses is None:
            owners = self._owners_of(part.group)
            self._known.reshape(self._owners, -1)[owners] = False
        else:
            places, inside = self._places(part.group, part.addresses, size)
            self._known[places[inside]] = False

    def _places(self, group: Group, addresses: Lanes, size: int) -> tuple[Lanes, Mask]:
        """Row by row the places of a number's bytes, and whether all of them exist."""
        inside = (addresses >= 0) & (addresses + size <= self._size)
        starts = self._owners_of(group) * self._size + addresses
        places = starts[:, np.newaxis] + np.arange(size)
        return np.where(inside[:, np.newaxis], places, 0), inside
