"""Instructions on mbarriers: who arrives, what bytes are expected, who waits."""

from collections.abc import Callable

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.building import Builder, Execute, forget
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import Decoded, Operand, UnmodelledError
from compare.ptx_simulator.phases import Mbarriers
from compare.ptx_simulator.values import BOOL, U32, Lanes, Mask, constant

WAITS = ("try_wait", "test_wait")

_NO_MBARRIER = "names what is no mbarrier"
_BYTES = 8  # of an mbarrier


def _mbarrier(decoded: Decoded) -> Execute:
    """`mbarrier`: without contents, what is waited for has always come."""
    if any(map(decoded.has, WAITS)):
        return _wait(decoded)
    if decoded.has("init"):
        return _change(decoded, 0, decoded.source(1, U32), Mbarriers.begin)
    if decoded.has("inval"):
        return _change(decoded, 0, _always(0), Mbarriers.end)
    if decoded.has("arrive"):
        return _arrive(decoded)
    if decoded.has("expect_tx"):
        return _change(decoded, 0, decoded.source(1, U32), Mbarriers.expect)
    raise UnmodelledError


def _always(number: int) -> Operand:
    value = constant(number, U32)
    return lambda batch, group: value


def _arrive(decoded: Decoded) -> Execute:
    """`arrive`, also with bytes to expect; a state that it returns is unknown."""
    lost = forget(decoded.destinations())
    does = Mbarriers.arrive_and_expect if decoded.has("expect_tx") else Mbarriers.arrive
    number = decoded.source(2, U32) if decoded.count > 2 else _always(1)
    arrive = _change(decoded, 1, number, does)

    def execute(batch: Batch, group: Group) -> None:
        lost(batch, group)
        arrive(batch, group)

    return execute


def _change(
    decoded: Decoded,
    position: int,
    number: Operand,
    change: Callable[[Mbarriers, Lanes, Lanes, Lanes], None],
) -> Execute:
    """Changes the mbarrier that each lane names by an operand."""
    address, index = decoded.address(position), decoded.instruction.index
    begins, arrives = decoded.has("init"), decoded.has("arrive")
    ends = decoded.has("inval")

    def execute(batch: Batch, group: Group) -> None:
        if not batch.has_contents:
            return
        bits, known = number(batch, group)
        if not np.all(known):
            batch.tell(index, group, "passes an unknown number to an mbarrier")
            return
        numbers = np.broadcast_to(bits, group.size).astype(np.int64)
        places = batch.shared_places(index, group, address(batch, group))
        if places is None:
            return
        owners, addresses = places
        there = batch.mbarriers.are_there(owners, addresses)
        if begins or there.all():
            _look_for_races(batch, group, places, index, is_use=not (begins or ends))
            if batch.races and arrives:
                batch.races.send_to(places, group)
            change(batch.mbarriers, owners, addresses, numbers)
        else:
            absent = group.select(~there)
            batch.tell(index, absent or group, _NO_MBARRIER)

    return execute


def _look_for_races(
    batch: Batch, group: Group, places: tuple[Lanes, Lanes], index: int, *, is_use: bool
) -> None:
    """Looks whether an mbarrier begins, or ends, in no order with its use by others."""
    if batch.races is None:
        return
    starts, inside = batch.shared.places(*places, _BYTES)
    if inside is None:
        does = batch.races.read if is_use else batch.races.write
        actor = batch.races.actor(index, group)
        does(actor, starts, _BYTES)
        if batch.lives:
            batch.lives.reach(actor, group, places[0])


def _wait(decoded: Decoded) -> Execute:
    """`try_wait`, `test_wait`: true, since the machine lets nobody by before that."""
    slot, address = decoded.destination(), decoded.address(1)
    index = decoded.instruction.index

    def execute(batch: Batch, group: Group) -> None:
        batch.write(slot, group, constant(1, BOOL))
        if batch.races:
            places = batch.shared_places(index, group, address(batch, group))
            if places is not None:
                _look_for_races(batch, group, places, index, is_use=True)
                batch.races.receive_from(places, group)

    return execute


# Which lanes of a group need not wait at an mbarrier any longer.
Ended = Callable[[Batch, Group], Mask]


def phase_of_wait(decoded: Decoded) -> Ended | None:
    """Tells of a `try_wait` for whom the phase that it waits for is over.

    None if the phase is given by a state that `arrive` returned.
    """
    if not decoded.has("parity"):
        return None
    address, parity = decoded.address(1), decoded.source(2, U32)
    index = decoded.instruction.index

    def ended(batch: Batch, group: Group) -> Mask:
        places = batch.shared_places(index, group, address(batch, group))
        if places is None:
            return np.zeros(group.size, np.bool_)
        absent = group.select(~batch.mbarriers.are_there(*places))
        if absent is not None:
            batch.tell(index, absent, _NO_MBARRIER)
        bits, _ = parity(batch, group)
        parities = np.broadcast_to(bits & 1, group.size).astype(np.int64)
        return batch.mbarriers.have_ended(*places, parities)

    return ended


MBARRIERS: dict[str, Builder] = {"mbarrier": _mbarrier}
