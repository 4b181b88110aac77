"""Loads and stores."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.bounds import Access
from compare.ptx_simulator.building import Builder, Execute, do_nothing, forget
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import Decoded, UnmodelledError
from compare.ptx_simulator.spaces import Part, parts
from compare.ptx_simulator.values import (
    BOOL,
    Dtype,
    Mask,
    PtxType,
    Value,
    constant,
    unknown,
)

_PARAMETER = re.compile(r"\[\s*([\w$]+)\s*(?:\+\s*(\d+))?\s*\]")


def _space(decoded: Decoded) -> str:
    return next(iter(decoded.spaces), "generic")


def access_of(decoded: Decoded, *, is_store: bool) -> Access:
    """What an instruction moves for each thread."""
    lengths = {"v2": 2, "v4": 4, "v8": 8}
    length = next((lengths[each] for each in decoded.modifiers if each in lengths), 1)
    return Access(decoded.instruction.index, is_store, decoded.type.bytes * length)


def _load(decoded: Decoded) -> Execute:
    space, kind, slots = _space(decoded), decoded.type, decoded.destinations()
    if space == "param":
        return _load_parameter(decoded, slots)
    access, address = access_of(decoded, is_store=False), decoded.address(1)

    def execute(batch: Batch, group: Group) -> None:
        if space == "const" and not batch.has_contents:
            batch.forget(slots, group)
            return
        for part in parts(space, group, address(batch, group)):
            batch.count(access, part)
            for place, slot in enumerate(slots):
                loaded = _loaded(batch, part, place * kind.bytes, kind, access)
                batch.write(slot, part.group, loaded)

    return execute


def _loaded(
    batch: Batch, part: Part, offset: int, kind: PtxType, access: Access
) -> Value:
    """What some lanes load from behind their addresses."""
    storage = batch.storages.get(part.space)
    if storage is None:  # nothing is known of it
        return constant(0, BOOL) if batch.meter.are_indices(part) else unknown(BOOL)
    loaded = storage.load(part, offset, kind)
    if part.addresses is not None:
        batch.tell_unwritten(
            access.index, part.group, part.behind(offset), loaded.known, part.space
        )
    return loaded


def _load_parameter(decoded: Decoded, slots: list[int | None]) -> Execute:
    """`ld.param` of the kernel's own parameters; those of a call are unknown."""
    found, kind = _PARAMETER.fullmatch(decoded.text(1)), decoded.type
    if found and found[1] in decoded.decoder.parameters and kind.dtype:
        name, dtype, first = found[1], kind.dtype, 8 * int(found[2] or 0)

        def execute(batch: Batch, group: Group) -> None:
            number = batch.memory.parameters[name] >> first
            for place, slot in enumerate(slots):
                bits, known = constant(number >> place * kind.bits, dtype)
                batch.write(slot, group, Value(kind.numbers(bits), known))

        return execute
    if not decoded.text(1).lstrip("[ ").startswith("%"):
        return forget(slots)
    return _load_computed_parameter(decoded, slots)


def _load_computed_parameter(decoded: Decoded, slots: list[int | None]) -> Execute:
    """`ld.param` from an address in a register, as arrays of parameters are read."""
    kind, dtype, address = decoded.type, decoded.dtype, decoded.address(1)
    places = decoded.decoder.addresses.by_name
    names = decoded.decoder.parameters

    def execute(batch: Batch, group: Group) -> None:
        bits, known = address(batch, group)
        if known is False:
            batch.forget(slots, group)
            return
        for place, slot in enumerate(slots):
            result = np.zeros(bits.size, dtype)
            for each in np.unique(bits):
                name = max(
                    (name for name in names if places[name] <= each),
                    key=lambda name: places[name],
                )
                number = batch.memory.parameters[name] >> 8 * (int(each) - places[name])
                result[bits == each] = constant(number >> place * kind.bits, dtype).bits
            batch.write(slot, group, Value(kind.numbers(result), known))

    return execute


def _store(decoded: Decoded) -> Execute:
    space, dtype = _space(decoded), decoded.type.dtype
    if space == "param":
        return do_nothing
    if decoded.has("bulk"):
        raise UnmodelledError
    if decoded.has("async"):
        return _store_asynchronously(decoded)
    # Its races are looked for where its values are at hand.
    access = replace(access_of(decoded, is_store=True), is_plain=False)
    address, sources = decoded.address(0), decoded.sources(1, dtype)

    def execute(batch: Batch, group: Group) -> None:
        for part in parts(space, group, address(batch, group)):
            batch.count(access, part)
            storage = batch.storages.get(part.space)
            if storage is None or part.addresses is None or dtype is None:
                batch.lose(part, access.bytes_per_thread)
                continue
            values = [
                batch.believed(source(batch, part.group), part.group)
                for source in sources
            ]
            if batch.races and part.space == "shared":
                changes = _changes(batch, part, values, dtype)
                batch.look_for_races(access, part, changes)
            for place, value in enumerate(values):
                if part.space == "global":
                    batch.tell_undefined(access.index, part.group, value.known)
                places = part.behind(place * dtype.itemsize)
                storage.store(part.group, places, value, dtype)

    return execute


def _changes(batch: Batch, part: Part, values: Sequence[Value], dtype: Dtype) -> Mask:
    """Which lanes store something other than what is there."""
    assert part.addresses is not None
    changes = np.zeros(part.group.size, np.bool_)
    for place, value in enumerate(values):
        addresses = part.addresses + place * dtype.itemsize
        there = batch.shared.load_places(part.group.blocks, addresses, dtype)
        is_same = (there.bits == value.bits.astype(dtype, copy=False)) & there.known
        changes |= ~(is_same & value.known)
    return changes


def _store_asynchronously(decoded: Decoded) -> Execute:
    """`st.async`: into a block of the cluster, whose mbarrier hears of the bytes."""
    access = replace(access_of(decoded, is_store=True), is_plain=False)
    dtype = decoded.dtype
    address, barrier = decoded.address(0), decoded.address(2)
    sources = decoded.sources(1, dtype)

    def execute(batch: Batch, group: Group) -> None:
        for part in parts("shared", group, address(batch, group)):
            batch.count(access, part)
        places = batch.shared_places(access.index, group, address(batch, group))
        barriers = batch.shared_places(access.index, group, barrier(batch, group))
        if not batch.has_contents or places is None or barriers is None:
            batch.lose(Part("shared", group))
            return
        values = [source(batch, group) for source in sources]
        owners, addresses = places
        width = access.bytes_per_thread
        races = batch.races
        actor = races and races.starts(access.index, group, is_async=False)
        if batch.lives and actor:
            batch.lives.reach(actor, group, owners)

        def deliver() -> None:
            for number, value in enumerate(values):
                offsets = addresses + number * dtype.itemsize
                batch.shared.store_places(owners, offsets, value, dtype)
            if races and actor:
                starts, _ = batch.shared.places(owners, addresses, width)
                races.write(actor, starts, width)
                races.send_done_to(barriers, actor)
            batch.mbarriers.expect(*barriers, np.full(group.size, -width))

        batch.deliveries.start(deliver)

    return execute


MEMORY: dict[str, Builder] = {
    **dict.fromkeys(("ld", "ldu"), _load),
    "st": _store,
}
