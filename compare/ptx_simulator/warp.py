"""What lanes of a warp tell each other: shuffles, votes, reductions.

A lane that does not take part has nothing to tell: what others get from it is unknown.
"""

from collections.abc import Callable

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.building import Builder, Execute, forget
from compare.ptx_simulator.group import WARP, Group
from compare.ptx_simulator.operands import Decoded
from compare.ptx_simulator.values import (
    BOOL,
    U32,
    Bits,
    Mask,
    Value,
    both,
    settled,
    signed,
)

# Works on one row for each warp: of values, and of the lanes that take part.
_Reduction = Callable[[Bits, Mask], Bits]


def _shuffle(decoded: Decoded) -> Execute | None:
    """`shfl`: the value of another lane, and whether there is such a lane."""
    slots = [*decoded.destinations(0), None][:2]
    mode = next(
        (each for each in decoded.modifiers if each in ("up", "down", "bfly", "idx")),
        None,
    )
    if mode is None:
        return None
    value, amount = decoded.source(1, U32), decoded.source(2, U32)
    clamp = decoded.source(3, U32)

    def execute(batch: Batch, group: Group) -> None:
        (b, b_known), (c, c_known) = amount(batch, group), clamp(batch, group)
        lanes_known = both(b_known, c_known)
        source, is_there = _source_lanes(mode, group.column, b, c)
        if slots[1] is not None:
            batch.write(slots[1], group, Value(is_there, lanes_known))
        if slots[0] is None:
            return
        bits, known = value(batch, batch.layout.all_lanes)
        if known is False or lanes_known is False:
            batch.forget(slots[0], group)
            return
        places = group.numbers // WARP * WARP + source
        if bits.size > 1:
            bits = bits[places]
        if not isinstance(known, bool):
            known = known[places]
        if group.lanes is not None:
            known = both(known, group.members[places])
        batch.write(slots[0], group, Value(bits, both(known, lanes_known)))

    return execute


def _source_lanes(
    mode: str, lane: Bits, amount: Bits, clamp: Bits
) -> tuple[Bits, Bits]:
    """For each lane the one that it reads, and whether it is in the lane's segment."""
    amount = (amount & 31).astype(np.int64)
    limit = (clamp & 31).astype(np.int64)
    segment = (clamp >> 8 & 31).astype(np.int64)
    first = lane & segment
    last = first | limit & ~segment
    source = {
        "up": lane - amount,
        "down": lane + amount,
        "bfly": lane ^ amount,
        "idx": first | amount & ~segment,
    }[mode]
    is_there = source >= last if mode == "up" else source <= last
    return np.where(is_there, source, lane), is_there


def _vote(decoded: Decoded) -> Execute | None:
    """`vote`: something of the predicates of all lanes that take part."""
    slots = decoded.destinations(0)
    slot = slots[0]
    if slot is None:
        return None
    condition = decoded.source(1, BOOL)

    def execute(batch: Batch, group: Group) -> None:
        bits, known = condition(batch, group)
        is_known = group.bits_by_warp(np.broadcast_to(known, group.size))
        is_true = group.bits_by_warp(np.broadcast_to(bits & known, group.size))
        all_known, present = is_known == group.present, group.present
        has_false, has_true = (is_known & ~is_true) != 0, is_true != 0
        if decoded.has("ballot"):
            result, result_known = is_true, all_known
        elif decoded.has("all"):
            result, result_known = is_true == present, all_known | has_false
        elif decoded.has("any"):
            result, result_known = has_true, all_known | has_true
        else:
            mixed = has_true & has_false
            result, result_known = ~mixed, all_known | mixed
        batch.write(
            slot,
            group,
            Value(result[group.row], settled(result_known[group.row])),
        )

    return execute


def _active_mask(decoded: Decoded) -> Execute | None:
    """`activemask`: the lanes that are here together."""
    slot = decoded.destination()
    if slot is None:
        return None

    def execute(batch: Batch, group: Group) -> None:
        batch.write(slot, group, Value(group.present[group.row], known=True))

    return execute


def _elect(decoded: Decoded) -> Execute | None:
    """`elect`: the first lane of those that are here; which one is not promised."""
    number, is_elected = decoded.destinations(0)

    def execute(batch: Batch, group: Group) -> None:
        first = group.by_warp(np.ones(1, np.bool_)).argmax(axis=1)[group.row]
        if number is not None:
            batch.write(number, group, Value(first.astype(U32), known=True))
        if is_elected is not None:
            batch.write(is_elected, group, Value(group.column == first, known=True))

    return execute


def _extreme(pick: np.ufunc, is_signed: bool) -> _Reduction:
    def reduction(rows: Bits, present: Mask) -> Bits:
        numbers = signed(rows) if is_signed else rows
        limits = np.iinfo(numbers.dtype)
        neutral = limits.max if pick is np.minimum else limits.min
        result: Bits = pick.reduce(np.where(present, numbers, neutral), axis=1)
        return result.astype(numbers.dtype)

    return reduction


def _bitwise(combine: np.ufunc) -> _Reduction:
    def reduction(rows: Bits, present: Mask) -> Bits:
        neutral = U32.type(0xFFFFFFFF if combine is np.bitwise_and else 0)
        result: Bits = combine.reduce(np.where(present, rows, neutral), axis=1)
        return result

    return reduction


def _reduce(decoded: Decoded) -> Execute | None:
    """`redux`: a number made of those of all lanes that take part."""
    slot = decoded.destination()
    if slot is None or decoded.type.kind == "f":
        return forget([slot])
    reductions: dict[str, _Reduction] = {
        "add": _bitwise(np.add),
        "and": _bitwise(np.bitwise_and),
        "or": _bitwise(np.bitwise_or),
        "xor": _bitwise(np.bitwise_xor),
        "min": _extreme(np.minimum, decoded.type.kind == "s"),
        "max": _extreme(np.maximum, decoded.type.kind == "s"),
    }
    name = next((each for each in decoded.modifiers if each in reductions), None)
    if name is None:
        return None
    reduction, source = reductions[name], decoded.source(1, U32)

    def execute(batch: Batch, group: Group) -> None:
        bits, known = source(batch, group)
        if known is False:
            batch.forget(slot, group)
            return
        present = group.by_warp(np.ones(1, np.bool_))
        result = reduction(group.by_warp(bits), present)[group.row]
        is_known = group.bits_by_warp(np.broadcast_to(known, group.size))
        all_known = (is_known == group.present)[group.row]
        batch.write(slot, group, Value(result, settled(all_known)))

    return execute


def _match(decoded: Decoded) -> Execute | None:
    """`match`: the lanes that have the same number."""
    slots = [*decoded.destinations(0), None][:2]
    mask, matches = slots
    source, wants_all = decoded.source(1, decoded.type.dtype), decoded.has("all")

    def execute(batch: Batch, group: Group) -> None:
        bits, known = source(batch, group)
        rows, present = group.by_warp(bits), group.by_warp(np.ones(1, np.bool_))
        alike = rows[:, :, np.newaxis] == rows[:, np.newaxis, :]
        alike &= present[:, np.newaxis, :]
        lanes = np.packbits(alike, axis=2, bitorder="little").view(U32)
        found = lanes[group.row, group.column, 0]
        is_known = group.bits_by_warp(np.broadcast_to(known, group.size))
        all_known = settled((is_known == group.present)[group.row])
        are_all = found == group.present[group.row]
        if mask is not None:
            result = np.where(are_all | (not wants_all), found, U32.type(0))
            batch.write(mask, group, Value(result, all_known))
        if matches is not None:
            batch.write(matches, group, Value(are_all, all_known))

    return execute


def _among_members(build: Builder) -> Builder:
    """Builds what is done by those lanes alone that the last operand names."""

    def build_for_members(decoded: Decoded) -> Execute | None:
        execute = build(decoded)
        if execute is None or not decoded.has("sync"):
            return execute
        members, lost = decoded.source(-1, U32), forget(decoded.destinations(0))

        def execute_by_members(batch: Batch, group: Group) -> None:
            masks, known = members(batch, group)
            if known is not True:
                lost(batch, group)
                return
            for mask in np.unique(masks):
                part = group.select(masks == mask)
                assert part
                execute(batch, part)

        return execute_by_members

    return build_for_members


WARP_LEVEL: dict[str, Builder] = {
    "shfl": _shuffle,
    "activemask": _active_mask,
    "vote": _among_members(_vote),
    "elect": _among_members(_elect),
    "redux": _among_members(_reduce),
    "match": _among_members(_match),
}
