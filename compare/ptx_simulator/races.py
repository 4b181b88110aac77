"""Races in shared memory: accesses that nothing puts in an order.

Each warp has a clock that goes on when it tells others how far it is: at a barrier, or
by an arrival. What a warp has been told is a vector of such clocks, one for each warp
of its cluster. An access is a race if another warp's access to the same byte, one of
both a write, is later than the warp has been told of that one. Asynchronous work of a
warp is told of on its own, and so has clocks of its own: one for each kind, since that
work of a kind is done says that what was begun before it is, but of this kind alone.

The method is that of vector clocks, as in C. Flanagan and S. N. Freund, "FastTrack:
efficient and precise dynamic race detection" (PLDI 2009), with warps for threads. What
lanes of one warp do to each other is not looked at, nor are atomics.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from compare.ptx_simulator.group import WARP, Group, Layout
from compare.ptx_simulator.values import Bits, Lanes, Mask

# Takes the index of an instruction, a lane, what it does that it must not, and the
# index of another instruction that takes part, if there is one.
Tell = Callable[[int, int, str, int | None], None]

# Kinds of asynchronous work: copies by threads, products of matrices, and bulk copies
# to shared memory and from it.
COPIES, PRODUCTS, LOADS, STORES = range(4)

_NOBODY = -1


@dataclass(frozen=True)
class Actor:
    """Who accesses shared memory, and what it has been told.

    Attributes:
        index: of the instruction.
        lanes: a lane of the warp, for each access.
        units: whose clock the access is at, for each access.
        clusters: for each access.
        rows: of what they have been told, for each access.
        told: the clocks of all units of the cluster, in each row.
        is_async: whether it is the async proxy that accesses.
    """

    index: int
    lanes: Lanes
    units: Lanes
    clusters: Lanes
    rows: Lanes
    told: Bits
    is_async: bool = False

    def select(self, chosen: Mask) -> "Actor":
        """Some of its accesses."""
        return self._with(lambda each: each[chosen])

    def repeated(self, count: int) -> "Actor":
        """So many accesses in the place of each."""
        return self._with(lambda each: np.repeat(each, count, axis=0))

    def _with(self, change: Callable[[Bits], Bits]) -> "Actor":
        return replace(
            self,
            lanes=change(self.lanes),
            units=change(self.units),
            clusters=change(self.clusters),
            rows=change(self.rows),
        )


class Races:
    """The clocks of all warps of a batch, and the last accesses to every byte.

    Attributes:
        units: with a clock of their own, of a cluster.
    """

    def __init__(
        self, layout: Layout, stride: int, tell: Tell, *, kinds: int = 1
    ) -> None:
        """Begins with nothing told, and nothing accessed.

        Args:
            layout: of the batch.
            stride: bytes of shared memory from one block to the next.
            tell: takes what is found.
            kinds: of asynchronous work that are told from each other: 1 or all 4.
        """
        self._tell = tell
        self._kinds = kinds
        size = layout.cluster_size
        self._warps_per_cluster = layout.lanes_per_block // WARP * size
        self._clusters = len(layout.blocks) // size
        # Behind those of the warps, what their asynchronous work is at, kind by kind.
        units = self.units = (1 + kinds) * self._warps_per_cluster
        self._told = np.zeros((self._clusters, units, units), np.int32)
        every = np.arange(units)
        self._told[:, every, every] = 1
        n_bytes = len(layout.blocks) * stride
        self._writer = np.full(n_bytes, _NOBODY, np.int16)
        self._written = np.zeros(n_bytes, np.int32)  # the writer's clock
        self._write_index = np.zeros(n_bytes, np.int32)
        # Each reader's clock. The bytes of an access are neighbours: the other way
        # round each of them is in a cache line of its own.
        self._read = np.zeros((units, n_bytes), np.int32)
        self._reads = np.zeros(units, np.bool_)  # who has ever read anything
        self._read_index = np.zeros(n_bytes, np.int32)
        self._is_read = np.zeros(n_bytes, np.bool_)  # since it was written
        self._is_unfenced = np.zeros(n_bytes, np.bool_)  # for the async proxy
        self._messages: dict[Hashable, Bits] = {}

    # ---- Who does something ----------------------------------------------------------

    def actor(self, index: int, group: Group) -> Actor:
        """The warps of a group, one access for each lane."""
        clusters, units = self._units(group.numbers)
        told = self._told[clusters, units]
        rows = np.arange(units.size)
        return Actor(index, group.numbers, units, clusters, rows, told)

    def starts(
        self, index: int, group: Group, *, is_async: bool, kind: int | None = None
    ) -> Actor:
        """Asynchronous work that the warps of a group begin: after all they know.

        Args:
            index: of the instruction.
            group: the lanes, one access for each.
            is_async: whether the async proxy does it.
            kind: `PRODUCTS` if not given, or `COPIES` if the async proxy does not.
        """
        if kind is None:
            kind = PRODUCTS if is_async else COPIES
        behind = self._warps_per_cluster * (1 + kind % self._kinds)
        clusters, units = self._units(group.numbers)
        own = units + behind
        for cluster, unit in self._distinct(group):
            later = unit + behind
            self._told[cluster, later, later] += 1
        told = self._told[clusters, units].copy()
        rows = np.arange(own.size)
        told[rows, own] = self._told[clusters, own, own]
        return Actor(index, group.numbers, own, clusters, rows, told, is_async)

    def told(self, warp: int) -> Bits:
        """What a warp has been told: the clocks of all units of its cluster."""
        told: Bits = self._told[divmod(warp, self._warps_per_cluster)]
        return told

    def _units(self, lanes: Lanes) -> tuple[Lanes, Lanes]:
        return np.divmod(lanes // WARP, self._warps_per_cluster)

    def _distinct(self, group: Group) -> list[tuple[int, int]]:
        clusters, units = self._units(group.warp_numbers * WARP)
        return list(zip(clusters.tolist(), units.tolist(), strict=True))

    # ---- What tells others -----------------------------------------------------------

    def send(self, message: Hashable, group: Group) -> None:
        """Adds to a message all that the warps of a group know; they go on."""
        for cluster, unit in self._distinct(group):
            self._add(message, self._told[cluster, unit])
            self._told[cluster, unit, unit] += 1

    def send_to(self, mbarriers: tuple[Lanes, Lanes], group: Group) -> None:
        """Tells mbarriers, one for each lane, all that the lanes' warps know."""
        for mbarrier, chosen in _distinct_pairs(mbarriers):
            if lanes := group.select(chosen):
                self.send(("mbarrier", *mbarrier), lanes)

    def send_done_to(self, mbarriers: tuple[Lanes, Lanes], actor: Actor) -> None:
        """Tells mbarriers, one for each access, that asynchronous work is done."""
        for mbarrier, chosen in _distinct_pairs(mbarriers):
            told = actor.told[actor.rows[chosen]]
            self._add(("mbarrier", *mbarrier), told.max(axis=0))

    def receive_from(self, mbarriers: tuple[Lanes, Lanes], group: Group) -> None:
        """Tells the lanes' warps what mbarriers have been told."""
        for mbarrier, chosen in _distinct_pairs(mbarriers):
            if lanes := group.select(chosen):
                self.receive(("mbarrier", *mbarrier), lanes)

    def receive(self, message: Hashable, group: Group) -> None:
        """Tells the warps of a group what a message says."""
        if (sent := self._messages.get(message)) is not None:
            for cluster, unit in self._distinct(group):
                told = self._told[cluster, unit]
                np.maximum(told, sent, out=told)

    def is_done(self, actor: Actor) -> None:
        """Tells warps that asynchronous work of their own is done."""
        units = actor.units % self._warps_per_cluster
        warps = actor.clusters * self._warps_per_cluster + units
        for row in np.unique(warps, return_index=True)[1]:
            told = self._told[actor.clusters[row], units[row]]
            np.maximum(told, actor.told[actor.rows[row]], out=told)

    def forget(self, message: Hashable) -> None:
        """Ends a message."""
        self._messages.pop(message, None)

    def fence_async(self, group: Group) -> None:
        """Shows the async proxy all writes that the warps of a group know of."""
        unfenced = np.flatnonzero(self._is_unfenced)
        if not unfenced.size:
            return
        clusters = unfenced * self._clusters // self._writer.size
        for cluster, unit in self._distinct(group):
            told = self._told[cluster, unit][self._writer[unfenced]]
            is_known = (clusters == cluster) & (self._written[unfenced] <= told)
            self._is_unfenced[unfenced[is_known]] = False

    def _add(self, message: Hashable, told: Bits) -> None:
        before = self._messages.get(message)
        self._messages[message] = (
            told.copy() if before is None else np.maximum(before, told)
        )

    # ---- Accesses --------------------------------------------------------------------

    def read(self, actor: Actor, starts: Lanes, width: int) -> None:
        """Reads so many bytes from each of some places in all shared memory."""
        places = _by_byte(starts, width)
        self._compare_writes(actor, places, "reads")
        self._read[actor.units[:, np.newaxis], places] = _clock(actor)
        self._reads[actor.units] = True
        self._read_index[places] = actor.index
        self._is_read[places] = True
        if actor.is_async and (is_unfenced := self._is_unfenced[places]).any():
            first = int(is_unfenced.argmax())
            self._tell(
                actor.index,
                int(actor.lanes[first // width]),
                "reads by the async proxy what no fence.proxy.async has shown it",
                int(self._write_index[places.flat[first]]),
            )

    def write(
        self, actor: Actor, starts: Lanes, width: int, changes: Mask | None = None
    ) -> None:
        """Writes so many bytes.

        Args:
            actor: Who does it.
            starts: Where, in all shared memory.
            width: How many bytes at each place.
            changes: Which accesses change anything; all of them if not given. Warps
                that write the same do not disturb each other, nor who reads it, and the
                first of them counts.
        """
        if changes is not None and not changes.all():
            actor, starts = actor.select(changes), starts[changes]
        places = _by_byte(starts, width)
        self._compare_writes(actor, places, "writes")
        self._compare_reads(actor, places)
        self._writer[places] = actor.units[:, np.newaxis]
        self._written[places] = _clock(actor)
        self._write_index[places] = actor.index
        self._is_unfenced[places] = not actor.is_async

    def _compare_writes(self, actor: Actor, places: Lanes, does: str) -> None:
        writers = self._writer[places]
        told = actor.told[actor.rows[:, np.newaxis], writers]
        is_race = (writers != _NOBODY) & (self._written[places] > told)
        self._found(actor, is_race, places, self._write_index, "writes", does)

    def _compare_reads(self, actor: Actor, places: Lanes) -> None:
        """Looks who reads what is written there; from now on nobody has."""
        is_read = self._is_read[places]
        if not is_read.any():
            return
        units = np.flatnonzero(self._reads)[:, np.newaxis]
        rows, read = actor.rows[np.nonzero(is_read)[0]], places[is_read]
        is_race = np.zeros(places.shape, np.bool_)
        is_later = self._read[units, read] > actor.told[rows, units]
        is_race[is_read] = np.logical_or.reduce(is_later)
        self._found(actor, is_race, places, self._read_index, "reads")
        self._read[units, read] = 0
        self._is_read[read] = False

    def _found(
        self,
        actor: Actor,
        is_race: Mask,
        places: Lanes,
        indices: Bits,
        other: str,
        does: str = "writes",
    ) -> None:
        if is_race.any():
            first = int(is_race.argmax())
            self._tell(
                actor.index,
                int(actor.lanes[first // places.shape[1]]),
                f"{does} shared memory that another warp {other}, in no order",
                int(indices[places.flat[first]]),
            )


def _clock(actor: Actor) -> Bits:
    """The time of each access, in a column."""
    clocks: Bits = actor.told[actor.rows, actor.units]
    return clocks[:, np.newaxis]


def _by_byte(starts: Lanes, width: int) -> Lanes:
    """The places of so many bytes from each of some places on, in a row."""
    return starts[:, np.newaxis] + np.arange(width)


def _distinct_pairs(
    pairs: tuple[Lanes, Lanes],
) -> Iterator[tuple[tuple[int, int], Mask]]:
    """Each pair of numbers, and where it stands."""
    for pair in sorted({*zip(*(each.tolist() for each in pairs), strict=True)}):
        yield pair, (pairs[0] == pair[0]) & (pairs[1] == pair[1])
