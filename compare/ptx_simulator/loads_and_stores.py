"""Loads, stores and atomics."""

import re

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.building import Builder, Execute, do_nothing, forget
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.meter import Access
from compare.ptx_simulator.operands import Decoded, UnmodelledError
from compare.ptx_simulator.spaces import parts
from compare.ptx_simulator.values import BOOL, Value, constant, unknown

_PARAMETER = re.compile(r"\[\s*([\w$]+)\s*(?:\+\s*(\d+))?\s*\]")
_MATRIX_ROW_BYTES = 16


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
        for part in parts(space, group, address(batch, group)):
            batch.count(access, part)
            elsewhere = zero if batch.meter.are_indices(part) else unknown(BOOL)
            storage = batch.storages.get(part.space)
            for place, slot in enumerate(slots):
                offset = place * kind.bytes
                loaded = storage.load(part, offset, kind) if storage else elsewhere
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
        for part in parts(space, group, address(batch, group)):
            batch.count(access, part)
            storage = batch.storages.get(part.space)
            if storage is None or part.addresses is None or dtype is None:
                batch.lose(part, access.bytes_per_thread)
                continue
            for place, source in enumerate(sources):
                value = batch.believed(source(batch, part.group), part.group)
                places = part.addresses + place * dtype.itemsize
                storage.store(part.group, places, value, dtype)

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
            for part in parts(space, givers, address(batch, givers)):
                batch.count(access, part)
                if is_store:
                    batch.lose(part, _MATRIX_ROW_BYTES)
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
        for part in parts(space, group, address(batch, group)):
            for access in accesses:
                batch.count(access, part)
            batch.lose(part, accesses[0].bytes_per_thread)
        batch.forget(slots, group)

    return execute


MEMORY: dict[str, Builder] = {
    **dict.fromkeys(("ld", "ldu"), _load),
    "st": _store,
    **dict.fromkeys(("ldmatrix", "stmatrix"), _matrices),
    **dict.fromkeys(("atom", "red"), _read_and_write),
}
