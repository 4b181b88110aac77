"""Exchanges between the lanes of a warp: shuffles, votes, reductions.

A lane that does not take part has nothing to tell: what others get from it is unknown.
"""

from collections.abc import Callable

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.building import Builder, Execute
from compare.ptx_simulator.group import WARP, Group
from compare.ptx_simulator.operands import Decoded
from compare.ptx_simulator.values import BOOL, U32, Bits, Dtype, Value, constant, take


def _shuffle(decoded: Decoded) -> Execute:
    """`shfl`: the value of another lane, and whether there is such a lane."""
    slot, finds = [*decoded.destinations(), None][:2]
    mode = decoded.one_of(("up", "down", "bfly", "idx"))
    value, amount = decoded.source(1, U32), decoded.source(2, U32)
    clamp = decoded.source(3, U32)

    def execute(batch: Batch, group: Group) -> None:
        b, c = amount(batch, group), clamp(batch, group)
        lanes_known = b.known & c.known
        source, is_there = _source_lanes(mode, group.column, b.bits, c.bits)
        batch.write(finds, group, Value(is_there, lanes_known))
        told = value(batch, batch.layout.all_lanes)
        if told.known is False or lanes_known is False:
            batch.forget([slot], group)
            return
        places = group.numbers & -WARP | source
        bits, known = take(told, places)
        if group.lanes is not None:
            known = known & group.members[places]
        batch.write(slot, group, Value(bits, known & lanes_known))

    return execute


_LANES = np.arange(WARP)


def _source_lanes(
    mode: str, lane: Bits, amount: Bits, clamp: Bits
) -> tuple[Bits, Bits]:
    """For each lane the one that it reads, and whether it is in the lane's segment."""
    if amount.size == clamp.size == 1 and lane.size > WARP:  # alike in all warps
        source, is_there = _source_lanes(mode, _LANES, amount, clamp)
        return source[lane], is_there[lane]
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


# ---- What the lanes of a warp get, a value for each destination ----------------------


def _vote(decoded: Decoded, group: Group, condition: Value) -> list[Value]:
    """`vote`: something of the predicates of all lanes that take part."""
    bits, known = condition
    is_known, is_true = group.bits_by_warp(known), group.bits_by_warp(bits & known)
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
    return [Value(result[group.row], result_known[group.row])]


def _active_mask(decoded: Decoded, group: Group) -> list[Value]:
    """`activemask`: the lanes that are here together."""
    return [Value(group.present[group.row], known=True)]


def _elect(decoded: Decoded, group: Group, _members: Value) -> list[Value]:
    """`elect`: the first lane of those that are here; which one is not promised."""
    first = group.is_present.argmax(axis=1)[group.row]
    return [Value(first, known=True), Value(group.column == first, known=True)]


def _match(decoded: Decoded, group: Group, value: Value) -> list[Value]:
    """`match`: the lanes that have the same number."""
    rows = group.by_warp(value.bits)
    alike = rows[:, :, np.newaxis] == rows[:, np.newaxis, :]
    alike &= group.is_present[:, np.newaxis, :]
    lanes = np.packbits(alike, axis=2, bitorder="little").view(U32)
    found = lanes[group.row, group.column, 0]
    all_known = group.in_all_of_warp(value.known)
    are_all = found == group.present[group.row]
    result = np.where(are_all | (not decoded.has("all")), found, U32.type(0))
    return [Value(result, all_known), Value(are_all, all_known)]


def _of_warps(
    function: Callable[..., list[Value]], dtype: Dtype | None = None
) -> Builder:
    """Builds what is done by those lanes alone that the last operand names.

    Args:
        function: of the decoded instruction, the lanes, and what they hold.
        dtype: of what they hold, if not that of the opcode.
    """

    def build(decoded: Decoded) -> Execute:
        slots = decoded.destinations()
        has_operand = decoded.count > 1
        operands = [decoded.source(1, dtype or decoded.dtype)] if has_operand else []
        members = decoded.source(-1, U32) if decoded.has("sync") else None

        def execute(batch: Batch, group: Group) -> None:
            masks, known = members(batch, group) if members else constant(0, U32)
            if not np.all(known):
                batch.forget(slots, group)
                return
            for _, part in group.split(masks):
                results = function(decoded, part, *(e(batch, part) for e in operands))
                for slot, value in zip(slots, results, strict=False):
                    batch.write(slot, part, value)

        return execute

    return build


def _reduce(decoded: Decoded) -> Execute:
    """`redux`: a number made of those of all lanes that take part."""
    limits = np.iinfo(np.int32 if decoded.type.kind == "s" else np.uint32)
    # Each with what a lane stands for that does not take part.
    reductions: dict[str, tuple[np.ufunc, int]] = {
        "add": (np.add, 0),
        "and": (np.bitwise_and, limits.max),
        "or": (np.bitwise_or, 0),
        "xor": (np.bitwise_xor, 0),
        "min": (np.minimum, limits.max),
        "max": (np.maximum, limits.min),
    }
    combine, neutral = reductions[decoded.one_of(reductions)]

    def reduce(decoded: Decoded, group: Group, value: Value) -> list[Value]:
        rows = decoded.type.numbers(group.by_warp(value.bits))
        rows = np.where(group.is_present, rows, rows.dtype.type(neutral))
        result = combine.reduce(rows, axis=1)[group.row]
        return [Value(result, group.in_all_of_warp(value.known))]

    return _of_warps(reduce, U32)(decoded)


WARP_LEVEL: dict[str, Builder] = {
    "shfl": _shuffle,
    "activemask": _of_warps(_active_mask),
    "vote": _of_warps(_vote, BOOL),
    "elect": _of_warps(_elect, U32),
    "redux": _reduce,
    "match": _of_warps(_match),
}
