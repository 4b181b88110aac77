"""Memory that belongs to blocks or to threads: shared and local."""

from collections.abc import Callable

import numpy as np

from compare.ptx_simulator.bytes import gather, scatter
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.spaces import Part
from compare.ptx_simulator.values import (
    BOOL,
    U8,
    Bits,
    Dtype,
    Lanes,
    Mask,
    PtxType,
    Value,
    unknown,
)

_ALIGN = 16  # bytes, the widest access
_KNOWN = np.uint8(0xFF)


class Storage:
    """Bytes of several owners: blocks, or threads.

    Nothing is allocated before something known is stored: where memory has no contents,
    what kernels mostly keep there is floating point, and unknown.

    Attributes:
        stride: bytes from the beginning of an owner's to those of the next.
    """

    def __init__(
        self,
        owners: int,
        size: int,
        owners_of: Callable[[Group], Lanes],
        reach: Callable[[Lanes, Lanes], tuple[Lanes, Lanes]] | None = None,
        *,
        keeps_one: bool = False,
    ) -> None:
        """Makes so many bytes for each owner, all of them unknown.

        Args:
            owners: How many there are.
            size: The bytes of each.
            owners_of: For each lane of a group the owner of what it accesses.
            reach: Makes owner and place of an owner and an address that may lead to
                another one's bytes. If there is none, all addresses are places.
            keeps_one: Whether one of several numbers stays that lanes store at one
                place, as on a GPU; otherwise nothing is known of it.
        """
        self._keeps_one = keeps_one
        self._owners = owners
        self._size = size
        self._owners_of = owners_of
        self._reach = reach
        # Each owner's bytes begin at a multiple of the widest access, and are followed
        # by some that stand for all that do not exist.
        self.stride = -(-size // _ALIGN) * _ALIGN + _ALIGN
        self._bytes = self._known = np.zeros(0, U8)

    @property
    def is_blank(self) -> bool:
        """Whether nothing known was ever stored."""
        return not self._known.size

    def load(self, part: Part, offset: int, kind: PtxType) -> Value:
        """The numbers that lie so many bytes behind the addresses of some lanes."""
        if self.is_blank or part.addresses is None or kind.dtype is None:
            return unknown(BOOL)
        owners = self._owners_of(part.group)
        bits, known = self.load_places(owners, part.behind(offset), kind.dtype)
        return Value(kind.numbers(bits), known)

    def load_places(self, owners: Lanes, addresses: Lanes, dtype: Dtype) -> Value:
        """The numbers at addresses of owners, as many of the one as of the other."""
        if self.is_blank:
            return unknown(dtype)
        places, inside = self.places(owners, addresses, dtype.itemsize)
        known: Mask = gather(self._known, places, dtype) == _all_ones(dtype)
        if inside is not None:
            known &= inside
        return Value(gather(self._bytes, places, dtype), bool(known.all()) or known)

    def store(self, group: Group, addresses: Lanes, value: Value, dtype: Dtype) -> None:
        """Stores a value."""
        self.store_places(self._owners_of(group), addresses, value, dtype)

    def store_places(
        self, owners: Lanes, addresses: Lanes, value: Value, dtype: Dtype
    ) -> None:
        """Stores numbers at addresses of owners."""
        if self.is_blank:
            if not np.any(value.known):
                return
            self._bytes = np.zeros(self._owners * self.stride, U8)
            self._known = np.zeros(self._owners * self.stride, U8)
        places, inside = self.places(owners, addresses, dtype.itemsize)
        bits, known = value.bits.astype(dtype, copy=False), value.known
        if inside is not None:
            places = places[inside]
            bits = np.broadcast_to(bits, inside.size)[inside]
            known = np.broadcast_to(known, inside.size)[inside]
        if not places.size:
            return
        are_known = self._known, _all_ones(dtype)
        scatter(places, dtype, (self._bytes, bits), are_known)
        if not self._keeps_one:
            stays: Mask = gather(self._bytes, places, dtype) == bits
            known = known & (bool(stays.all()) or stays)
        if known is not True:
            lost = places[~np.broadcast_to(known, places.size)]
            scatter(lost, dtype, (self._known, np.zeros(1, dtype)))

    def forget(self, part: Part, size: int) -> None:
        """Something unknown is written there, or who knows where."""
        if self.is_blank:
            return
        owners = self._owners_of(part.group)
        if part.addresses is None:
            self._known.reshape(self._owners, -1)[owners] = 0
            return
        places, inside = self.places(owners, part.addresses, size)
        if inside is not None:
            places = places[inside]
        self._known[places[:, np.newaxis] + np.arange(size)] = 0

    def places(
        self, owners: Lanes, addresses: Lanes, size: int
    ) -> tuple[Lanes, Mask | None]:
        """Where numbers of so many bytes lie, and which exist; None if all of them."""
        if self._reach is not None:
            owners, addresses = self._reach(owners, addresses)
        starts = owners * self.stride + addresses
        inside: Mask = (addresses >= 0) & (addresses <= self._size - size)
        if inside.all():
            return starts, None
        return np.where(inside, starts, self.stride - _ALIGN), inside


def _all_ones(dtype: Dtype) -> Bits:
    """What a number's bytes are marked with where all of them are known."""
    return np.full(dtype.itemsize, _KNOWN).view(dtype)
