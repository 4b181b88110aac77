"""Loads, stores and atomics."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.building import Builder, Execute, do_nothing, forget
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.meter import Access
from compare.ptx_simulator.operands import Decoded
from compare.ptx_simulator.spaces import WINDOW_BYTES, WINDOWS
from compare.ptx_simulator.storage import Storage
from compare.ptx_simulator.values import Lanes, Mask, PtxType, Value, constant, extend

_WINDOW_NAMES = {
    window // WINDOW_BYTES: name for name, window in WINDOWS.items() if window
}
_UNKNOWN_WINDOW = -1000
_PARAMETER = re.compile(r"\[\s*([\w$]+)\s*(?:\+\s*(\d+))?\s*\]")
_MATRIX_ROW_BYTES = 16


@dataclass(frozen=True)
class Part:
    """Lanes that access the same space.

    Attributes:
        space: which one; `generic` if the addresses are unknown.
        group: the lanes.
        addresses: in this space, one for each lane; None if they are unknown.
        chosen: which of the lanes of the whole access these are.
    """

    space: str
    group: Group
    addresses: Lanes | None
    chosen: Mask | slice


def parts(space: str, group: Group, address: Value) -> Iterator[Part]:
    """Splits an access into lanes of known and unknown addresses, and by space."""
    everything = slice(None)
    if address.known is False:
        yield Part(space, group, None, everything)
        return
    addresses = np.broadcast_to(address.bits, group.size)
    if space != "generic" and address.known is True:
        yield Part(space, group, addresses, everything)
        return
    windows = addresses // WINDOW_BYTES if space == "generic" else 0 * addresses
    windows = np.where(address.known, windows, _UNKNOWN_WINDOW)
    for window in np.unique(windows):
        chosen = windows == window
        part = group.select(chosen)
        assert part
        if window == _UNKNOWN_WINDOW:
            yield Part(space, part, None, chosen)
        elif window in _WINDOW_NAMES:
            inside = addresses[chosen] - window * WINDOW_BYTES
            yield Part(_WINDOW_NAMES[window], part, inside, chosen)
        else:
            name = "global" if space == "generic" else space
            yield Part(name, part, addresses[chosen], chosen)


def count(batch: Batch, access: Access, part: Part, sizes: Lanes | None = None) -> None:
    """Counts what a part of an access moves; `sizes` if not all lanes move the same."""
    meter, group, doubtful = batch.meter, part.group, batch.doubtful(part.group)
    if part.addresses is None:
        meter.count_unknown(access, part.space, group)
    elif part.space == "global":
        meter.count_global(access, group, part.addresses, sizes, doubtful)
    elif part.space == "shared":
        meter.count_shared(access, group, part.addresses, doubtful)
    elif part.space == "local":
        meter.count_local(access, group, part.addresses)


def forget_memory(batch: Batch, part: Part, size: int) -> None:
    """Something unknown was written: what memory held there is not known any more."""
    for space, storage in (("shared", batch.shared), ("local", batch.local)):
        if storage.is_blank or part.space not in (space, "generic"):
            continue
        owners = _owners(part.group, space)
        if part.addresses is None:
            storage.forget_all(owners)
        else:
            storage.forget(owners, part.addresses, size)


def _storage(batch: Batch, space: str) -> Storage | None:
    return {"shared": batch.shared, "local": batch.local}.get(space)


def _owners(group: Group, space: str) -> Lanes:
    return group.blocks if space == "shared" else group.numbers


def _space(decoded: Decoded) -> str:
    spaces = ("global", "shared", "local", "const", "param")
    names = (each.partition("::")[0] for each in decoded.modifiers)
    return next((each for each in names if each in spaces), "generic")


def _access(decoded: Decoded, *, is_store: bool) -> Access:
    lengths = {"v2": 2, "v4": 4, "v8": 8}
    length = next((lengths[each] for each in decoded.modifiers if each in lengths), 1)
    return Access(decoded.instruction.index, is_store, decoded.type.bytes * length)


# ---- Loads ---------------------------------------------------------------------------


def _load(decoded: Decoded) -> Execute | None:
    space, slots = _space(decoded), decoded.destinations(0)
    unknown = forget(slots)
    if space == "param":
        return _load_parameter(decoded, slots) or unknown
    if space == "const":
        return unknown
    access, address = _access(decoded, is_store=False), decoded.address(1)
    kind = decoded.type

    def execute(batch: Batch, group: Group) -> None:
        for part in parts(space, group, address(batch, group)):
            count(batch, access, part)
            if _are_indices(batch, part):
                for slot in slots:
                    if slot is not None:
                        zero = constant(0, batch.dtypes[slot])
                        batch.write(slot, part.group, zero)
                continue
            storage = _storage(batch, part.space)
            if storage is None or storage.is_blank or part.addresses is None:
                unknown(batch, part.group)
                continue
            owners = _owners(part.group, part.space)
            for place, slot in enumerate(slots):
                if slot is not None and kind.dtype is not None:
                    offsets = part.addresses + place * kind.bytes
                    value = storage.load(owners, offsets, kind.dtype)
                    _write_extended(batch, slot, part.group, value, kind)

    return execute


def _are_indices(batch: Batch, part: Part) -> bool:
    """Whether a part of an access is to a tensor of indices."""
    if part.space != "global" or part.addresses is None:
        return False
    return batch.meter.are_indices(part.addresses)


def _write_extended(
    batch: Batch, slot: int, group: Group, value: Value, kind: PtxType
) -> None:
    """Writes a number from memory into a register that may be wider."""
    dtype = batch.dtypes[slot]
    bits = extend(value.bits, dtype, is_signed=kind.kind == "s")
    batch.write(slot, group, Value(bits, value.known))


def _load_parameter(decoded: Decoded, slots: list[int | None]) -> Execute | None:
    """`ld.param` of the kernel's own parameters; None for those of a call."""
    found = _PARAMETER.fullmatch(decoded.text(1))
    kind = decoded.type
    if not found or found[1] not in decoded.decoder.parameters or kind.dtype is None:
        return None
    number = decoded.decoder.parameters[found[1]] >> 8 * int(found[2] or 0)
    values = [
        constant(number >> place * kind.bits, kind.dtype) for place in range(len(slots))
    ]

    def execute(batch: Batch, group: Group) -> None:
        for slot, value in zip(slots, values, strict=True):
            if slot is not None:
                _write_extended(batch, slot, group, value, kind)

    return execute


def _load_matrix(decoded: Decoded) -> Execute | None:
    """`ldmatrix`: eight lanes for each matrix give the addresses of its rows."""
    access = Access(decoded.instruction.index, False, _MATRIX_ROW_BYTES)
    unknown, address = forget(decoded.destinations(0)), decoded.address(1)
    lanes = _matrix_rows(decoded)

    def execute(batch: Batch, group: Group) -> None:
        rows = group.select(group.column < lanes)
        if rows:
            for part in parts(_space(decoded), rows, address(batch, rows)):
                count(batch, access, part)
        unknown(batch, group)

    return execute


def _matrix_rows(decoded: Decoded) -> int:
    shape = next(each for each in decoded.modifiers if each.startswith("m"))
    number = next(each for each in decoded.modifiers if each in ("x1", "x2", "x4"))
    return min(32, (16 if shape.startswith("m16") else 8) * int(number[1:]))


# ---- Stores --------------------------------------------------------------------------


def _store(decoded: Decoded) -> Execute | None:
    space = _space(decoded)
    if space == "param":
        return do_nothing
    if decoded.has("bulk"):
        return None
    access, address = _access(decoded, is_store=True), decoded.address(0)
    dtype = decoded.type.dtype
    sources = decoded.sources(1, dtype)
    width = access.bytes_per_thread

    def execute(batch: Batch, group: Group) -> None:
        for part in parts(space, group, address(batch, group)):
            count(batch, access, part)
            storage = _storage(batch, part.space)
            if storage is None or part.addresses is None or dtype is None:
                forget_memory(batch, part, width)
                continue
            for place, source in enumerate(sources):
                value = batch.believed(source(batch, part.group), part.group)
                if storage.is_blank and value.known is False:
                    continue
                owners = _owners(part.group, part.space)
                offsets = part.addresses + place * dtype.itemsize
                storage.store(owners, offsets, value, dtype)

    return execute


def _store_matrix(decoded: Decoded) -> Execute | None:
    """`stmatrix`: the same as `ldmatrix`, the other way round."""
    access = Access(decoded.instruction.index, True, _MATRIX_ROW_BYTES)
    address, lanes = decoded.address(0), _matrix_rows(decoded)

    def execute(batch: Batch, group: Group) -> None:
        rows = group.select(group.column < lanes)
        if rows:
            for part in parts(_space(decoded), rows, address(batch, rows)):
                count(batch, access, part)
                forget_memory(batch, part, _MATRIX_ROW_BYTES)

    return execute


def _read_and_write(decoded: Decoded, address_position: int) -> Execute:
    """`atom`, `red`: a load and a store."""
    slots = decoded.destinations(0) if address_position else []
    space, unknown = _space(decoded), forget(slots)
    accesses = [_access(decoded, is_store=each) for each in (False, True)]
    address = decoded.address(address_position)

    def execute(batch: Batch, group: Group) -> None:
        for part in parts(space, group, address(batch, group)):
            for access in accesses:
                count(batch, access, part)
            forget_memory(batch, part, accesses[0].bytes_per_thread)
        unknown(batch, group)

    return execute


MEMORY: dict[str, Builder] = {
    "ld": _load,
    "ldu": _load,
    "ldmatrix": _load_matrix,
    "st": _store,
    "stmatrix": _store_matrix,
    "atom": lambda decoded: _read_and_write(decoded, 1),
    "red": lambda decoded: _read_and_write(decoded, 0),
}
