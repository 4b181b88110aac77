"""Loads, stores and atomics."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.building import Builder, Execute, do_nothing, forget
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.meter import Access
from compare.ptx_simulator.operands import Decoded, UnmodelledError
from compare.ptx_simulator.spaces import WINDOW_BYTES, WINDOWS
from compare.ptx_simulator.values import (
    BOOL,
    Lanes,
    Mask,
    PtxType,
    Value,
    constant,
    unknown,
)

_WINDOW_NAMES = {
    window // WINDOW_BYTES: name for name, window in WINDOWS.items() if window
}
_UNKNOWN_WINDOW = -1000
_PARAMETER = re.compile(r"\[\s*([\w$]+)\s*(?:\+\s*(\d+))?\s*\]")
_MATRIX_ROW_BYTES = 16


@dataclass(frozen=True)
class Part:
    """Lanes of a batch that access the same space.

    Attributes:
        batch: whose lanes they are.
        space: which one; `generic` if the addresses are unknown.
        group: the lanes.
        addresses: in this space, one or a row for each lane; None if unknown.
        chosen: which of the lanes of the whole access these are; None: all.
    """

    batch: Batch
    space: str
    group: Group
    addresses: Lanes | None = None
    chosen: Mask | None = None

    def count(self, access: Access, sizes: Lanes | None = None) -> None:
        """Counts what is moved; `sizes`, of the whole access, if not all is."""
        if sizes is not None and self.chosen is not None:
            sizes = sizes[self.chosen]
        self.batch.meter.count(
            access,
            self.space,
            self.group,
            self.addresses,
            sizes,
            self.batch.doubtful(self.group),
        )

    @property
    def are_indices(self) -> bool:
        """Whether a tensor of indices is accessed."""
        if self.space != "global" or self.addresses is None:
            return False
        return self.batch.meter.are_indices(self.addresses)

    def load(self, offset: int, kind: PtxType) -> Value:
        """The content of memory so many bytes behind the addresses."""
        storage = self.batch.storages.get(self.space)
        if storage is None or storage.is_blank or self.addresses is None:
            return unknown(BOOL)
        if kind.dtype is None:
            return unknown(BOOL)
        places = self.addresses + offset
        bits, known = storage.load(self.owners(self.space), places, kind.dtype)
        return Value(kind.numbers(bits), known)

    def forget(self, size: int = 0) -> None:
        """Makes memory unknown there, or, without addresses, all of it."""
        for space, storage in self.batch.storages.items():
            if self.space in (space, "generic"):
                storage.forget(self.owners(space), self.addresses, size)

    def owners(self, space: str) -> Lanes:
        """For each lane the owner of what it accesses: its block, or itself."""
        return self.group.blocks if space == "shared" else self.group.numbers


def parts(batch: Batch, space: str, group: Group, address: Value) -> Iterator[Part]:
    """Splits an access into lanes of known and unknown addresses, and by space."""
    if address.known is False:
        yield Part(batch, space, group)
        return
    addresses = np.broadcast_to(address.bits, group.size)
    if space != "generic" and address.known is True:
        yield Part(batch, space, group, addresses)
        return
    windows = addresses // WINDOW_BYTES if space == "generic" else 0 * addresses
    windows = np.where(address.known, windows, _UNKNOWN_WINDOW)
    for window in np.unique(windows):
        chosen = windows == window
        part = group.select(chosen)
        assert part
        if window == _UNKNOWN_WINDOW:
            yield Part(batch, space, part, None, chosen)
        elif window in _WINDOW_NAMES:
            inside = addresses[chosen] - window * WINDOW_BYTES
            yield Part(batch, _WINDOW_NAMES[window], part, inside, chosen)
        else:
            name = "global" if space == "generic" else space
            yield Part(batch, name, part, addresses[chosen], chosen)


def _space(decoded: Decoded) -> str:
    return next(iter(decoded.spaces), "generic")


def _access(decoded: Decoded, *, is_store: bool) -> Access:
    lengths = {"v2": 2, "v4": 4, "v8": 8}
    length = next((lengths[each] for each in decoded.modifiers if each in lengths), 1)
    return Access(decoded.instruction.index, is_store, decoded.type.bytes * length)


def _load(decoded: Decoded) -> Execute:
    space, kind, slots = _space(decoded), decoded.type, decoded.destinations()
    if space == "param":
        return _load_parameter(decoded, slots)
    if space == "const":
        return forget(slots)
    access, address = _access(decoded, is_store=False), decoded.address(1)
    zero = constant(0, BOOL)

    def execute(batch: Batch, group: Group) -> None:
        for part in parts(batch, space, group, address(batch, group)):
            part.count(access)
            are_indices = part.are_indices
            for place, slot in enumerate(slots):
                loaded = zero if are_indices else part.load(place * kind.bytes, kind)
                batch.write(slot, part.group, loaded)

    return execute


def _load_parameter(decoded: Decoded, slots: list[int | None]) -> Execute:
    """`ld.param` of the kernel's own parameters; those of a call are unknown."""
    found, kind = _PARAMETER.fullmatch(decoded.text(1)), decoded.type
    number = decoded.decoder.parameters.get(found[1]) if found else None
    if found is None or number is None or kind.dtype is None:
        return forget(slots)
    number >>= 8 * int(found[2] or 0)
    values = [
        constant(number >> place * kind.bits, kind.dtype) for place in range(len(slots))
    ]

    def execute(batch: Batch, group: Group) -> None:
        for slot, (bits, known) in zip(slots, values, strict=True):
            batch.write(slot, group, Value(kind.numbers(bits), known))

    return execute


def _store(decoded: Decoded) -> Execute:
    space, dtype = _space(decoded), decoded.type.dtype
    if space == "param":
        return do_nothing
    if decoded.has("bulk"):
        raise UnmodelledError
    access, address = _access(decoded, is_store=True), decoded.address(0)
    sources = decoded.sources(1, dtype)

    def execute(batch: Batch, group: Group) -> None:
        for part in parts(batch, space, group, address(batch, group)):
            part.count(access)
            storage = batch.storages.get(part.space)
            if storage is None or part.addresses is None or dtype is None:
                part.forget(access.bytes_per_thread)
                continue
            for place, source in enumerate(sources):
                value = batch.believed(source(batch, part.group), part.group)
                places = part.addresses + place * dtype.itemsize
                storage.store(part.owners(part.space), places, value, dtype)

    return execute


def _matrices(decoded: Decoded) -> Execute:
    """`ldmatrix`, `stmatrix`: eight lanes for each matrix give its rows' addresses."""
    is_store = decoded.stem == "stmatrix"
    access = Access(decoded.instruction.index, is_store, _MATRIX_ROW_BYTES)
    slots = [] if is_store else decoded.destinations()
    space, address = _space(decoded), decoded.address(0 if is_store else 1)
    rows = 16 if any(each.startswith("m16") for each in decoded.modifiers) else 8
    lanes = min(32, rows * int(decoded.one_of(("x1", "x2", "x4"))[1]))

    def execute(batch: Batch, group: Group) -> None:
        givers = group.select(group.column < lanes)
        if givers:
            for part in parts(batch, space, givers, address(batch, givers)):
                part.count(access)
                if is_store:
                    part.forget(_MATRIX_ROW_BYTES)
        batch.forget(slots, group)

    return execute


def _read_and_write(decoded: Decoded) -> Execute:
    """`atom`, which returns what was there, and `red`: a load and a store."""
    returns = decoded.stem == "atom"
    slots = decoded.destinations() if returns else []
    address = decoded.address(1 if returns else 0)
    accesses = [_access(decoded, is_store=each) for each in (False, True)]
    space = _space(decoded)

    def execute(batch: Batch, group: Group) -> None:
        for part in parts(batch, space, group, address(batch, group)):
            for access in accesses:
                part.count(access)
            part.forget(accesses[0].bytes_per_thread)
        batch.forget(slots, group)

    return execute


MEMORY: dict[str, Builder] = {
    **dict.fromkeys(("ld", "ldu"), _load),
    "st": _store,
    **dict.fromkeys(("ldmatrix", "stmatrix"), _matrices),
    **dict.fromkeys(("atom", "red"), _read_and_write),
}
