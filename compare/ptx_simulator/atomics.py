"""Atomics: a load, an operation and a store that nothing comes between."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from compare.ptx_simulator.batch import NOT_SIMULATED, Batch
from compare.ptx_simulator.building import Builder, Execute
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.loads_and_stores import access_of
from compare.ptx_simulator.operands import Decoded, Operand
from compare.ptx_simulator.spaces import Part, parts
from compare.ptx_simulator.values import Bits, Dtype, Lanes, Value

# What an atomic makes of what is there and its operands, seen as numbers.
_Combine = Callable[..., Bits]

# Of packed numbers.
_FORMS = {"f16x2", "bf16x2"}

_OPERATIONS: dict[str, _Combine] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, new: new,
    "cas": lambda old, asked, new: np.where(old == asked, new, old),
    "inc": lambda old, most: np.where(old >= most, 0, old + 1).astype(old.dtype),
    "dec": lambda old, most: np.where((old == 0) | (old > most), most, old - 1).astype(
        old.dtype
    ),
}


def _read_and_write(decoded: Decoded) -> Execute:
    """`atom`, which returns what was there, and `red`: a load and a store."""
    returns = decoded.stem == "atom"
    slots = decoded.destinations() if returns else []
    position = 1 if returns else 0
    address, space = decoded.address(position), next(iter(decoded.spaces), "generic")
    is_simulated = decoded.type.bits >= 32 and not _FORMS & {*decoded.modifiers}
    operations = _operations(decoded, position + 1) if is_simulated else []
    index = decoded.instruction.index
    accesses = [
        replace(access_of(decoded, is_store=each), is_plain=False)
        for each in (False, True)
    ]
    width = accesses[0].bytes_per_thread

    def execute(batch: Batch, group: Group) -> None:
        for part in parts(space, group, address(batch, group)):
            for access in accesses:
                batch.count(access, part)
            if not batch.has_contents or part.addresses is None:
                batch.lose(part, width)
                batch.forget(slots, part.group)
                continue
            if not operations:
                batch.tell(index, part.group, NOT_SIMULATED)
            for place, operation in enumerate(operations):
                there = part.addresses + place * decoded.type.bytes
                before = operation(batch, replace(part, addresses=there))
                for slot in slots[place : place + 1]:
                    batch.write(slot, part.group, before)

    return execute


# Does what an atomic does, and returns what was there before.
_Operation = Callable[[Batch, Part], Value]


def _operations(decoded: Decoded, first: int) -> list[_Operation]:
    """An operation for each number of a vector, for the operands from this one on."""
    end = decoded.count - decoded.has("L2::cache_hint")
    operands = [decoded.sources(place, decoded.dtype) for place in range(first, end)]
    return [_operation(decoded, each) for each in zip(*operands, strict=True)]


def _operation(decoded: Decoded, sources: Sequence[Operand]) -> _Operation:
    name, number = decoded.one_of(_OPERATIONS), _number_type(decoded)
    combine, dtype = _OPERATIONS[name], decoded.dtype
    index = decoded.instruction.index

    def operate(batch: Batch, part: Part) -> Value:
        group = part.group
        owners, addresses = _places(batch, part)
        operands = [_bits(each, batch, group) for each in sources]
        before = np.zeros(group.size, dtype)
        known = np.ones(group.size, np.bool_)
        # One lane after the other where several change the same number.
        for lanes in _turns(owners, addresses):
            where = owners[lanes], addresses[lanes]
            old = _load(batch, part.space, *where, dtype)
            new = combine(
                old.bits.view(number), *(each[lanes].view(number) for each in operands)
            )
            bits = np.ascontiguousarray(new).view(dtype)
            _store(batch, part.space, *where, Value(bits, old.known), dtype)
            before[lanes], known[lanes] = old
        batch.tell_unwritten(index, group, addresses, known, part.space)
        return Value(before, known)

    return operate


def _number_type(decoded: Decoded) -> Dtype:
    kind = decoded.type
    letter = {"s": "i", "f": "f"}.get(kind.kind, "u")
    return np.dtype(f"{letter}{kind.bytes}")


def _bits(operand: Operand, batch: Batch, group: Group) -> Bits:
    return np.ascontiguousarray(np.broadcast_to(operand(batch, group).bits, group.size))


def _places(batch: Batch, part: Part) -> tuple[Lanes, Lanes]:
    assert part.addresses is not None
    if part.space == "shared":
        return batch.reach(part.group.blocks, part.addresses)
    return np.zeros(part.group.size, np.int64), part.addresses


def _load(
    batch: Batch, space: str, owners: Lanes, addresses: Lanes, dtype: Dtype
) -> Value:
    if space == "shared":
        return batch.shared.load_places(owners, addresses, dtype)
    contents = batch.memory.contents
    assert contents is not None
    return contents.load_at(addresses, dtype)


def _store(
    batch: Batch,
    space: str,
    owners: Lanes,
    addresses: Lanes,
    value: Value,
    dtype: Dtype,
) -> None:
    if space == "shared":
        batch.shared.store_places(owners, addresses, value, dtype)
    elif batch.memory.contents is not None:
        batch.memory.contents.store_at(addresses, value, dtype)


def _turns(owners: Lanes, addresses: Lanes) -> Iterator[Lanes]:
    """Lanes of different places, again and again until all have had their turn."""
    order = np.lexsort((addresses, owners))
    is_new = np.ones(order.size, np.bool_)
    is_new[1:] = np.diff(addresses[order]) != 0
    is_new[1:] |= np.diff(owners[order]) != 0
    first = np.maximum.accumulate(np.where(is_new, np.arange(order.size), 0))
    turn = np.arange(order.size) - first
    for number in range(int(turn.max()) + 1):
        yield order[turn == number]


ATOMICS: dict[str, Builder] = dict.fromkeys(("atom", "red"), _read_and_write)
