"""Memory whose content is followed as far as it is known: shared and local."""

import numpy as np

from compare.ptx_simulator.values import U8, Dtype, Lanes, Mask, Value, unknown


class Storage:
    """Bytes of several owners: blocks, or threads.

    Nothing is allocated before something known is stored: what kernels mostly keep
    there is floating point, and unknown.
    """

    def __init__(self, owners: int, size: int) -> None:
        """Makes so many bytes for each owner, all of them unknown."""
        self._owners = owners
        self._size = size
        self._bytes, self._known = np.zeros(0, U8), np.zeros(0, np.bool_)

    @property
    def is_blank(self) -> bool:
        """Whether nothing known was ever stored."""
        return not self._known.size

    def load(self, owners: Lanes, offsets: Lanes, dtype: Dtype) -> Value:
        """One number for each pair of an owner and an offset."""
        if self.is_blank:
            return unknown(dtype)
        places, inside = self._places(owners, offsets, dtype.itemsize)
        content = np.ascontiguousarray(self._bytes[places])
        known = self._known[places].all(axis=1) & inside
        return Value(content.view(dtype).reshape(-1), known)

    def store(self, owners: Lanes, offsets: Lanes, value: Value, dtype: Dtype) -> None:
        """Stores a value; where lanes store different ones at one place, none."""
        if self.is_blank:
            if not np.any(value.known):
                return
            self._bytes = np.zeros(self._owners * self._size, U8)
            self._known = np.zeros(self._owners * self._size, np.bool_)
        places, inside = self._places(owners, offsets, dtype.itemsize)
        count = len(places)
        bits = np.broadcast_to(value.bits.astype(dtype, copy=False), count)
        content = np.ascontiguousarray(bits).view(U8).reshape(count, -1)[inside]
        known = np.broadcast_to(value.known, count)[inside]
        places = places[inside]
        self._bytes[places] = content
        self._known[places] = True
        lost = (self._bytes[places] != content) | ~known[:, np.newaxis]
        self._known[places[lost]] = False

    def forget(self, owners: Lanes, offsets: Lanes | None, size: int) -> None:
        """Something unknown is written there, or who knows where."""
        if self.is_blank:
            return
        if offsets is None:
            self._known.reshape(self._owners, -1)[owners] = False
        else:
            places, inside = self._places(owners, offsets, size)
            self._known[places[inside]] = False

    def _places(self, owners: Lanes, offsets: Lanes, size: int) -> tuple[Lanes, Mask]:
        """Row by row the places of a number's bytes, and whether all of them exist."""
        inside = (offsets >= 0) & (offsets + size <= self._size)
        starts = owners * self._size + offsets
        places = starts[:, np.newaxis] + np.arange(size)
        return np.where(inside[:, np.newaxis], places, 0), inside
