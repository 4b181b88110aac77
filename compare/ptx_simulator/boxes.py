"""Copies by the tensor memory accelerator, of boxes of tensors above all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.bounds import Access
from compare.ptx_simulator.building import Execute
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import Decoded, Operand
from compare.ptx_simulator.races import LOADS, STORES, Actor
from compare.ptx_simulator.simulation import TensorMap
from compare.ptx_simulator.spaces import Part
from compare.ptx_simulator.values import (
    U32,
    Bits,
    Dtype,
    Lanes,
    Mask,
    Value,
    settled,
    signed,
)

# Copies of other boxes than a tensor map has.
_OTHER_BOXES = ("im2col", "tile::gather4", "tile::scatter4")

_CHUNK_BYTES = 16  # which a swizzle moves as a whole


def swizzled(addresses: Lanes, swizzle_bytes: int) -> Lanes:
    """Where in shared memory the bytes lie that would be at these addresses.

    A swizzle of 128 bytes changes the place of chunks in each 128 bytes, by the number
    of these 128 bytes among eight: chunk i of row r lies at i ^ r. Those of 64 and of
    32 bytes change the places in so many bytes, by half and a quarter of that number.
    """
    mask = max(swizzle_bytes - _CHUNK_BYTES, 0)
    return addresses ^ (addresses >> 3 & mask)


def rounded_to_tf32(bits: Bits) -> Bits:
    """The bits of float32, rounded to the nearest tf32, which lacks the lowest 13.

    Ties go to even, numbers beyond the largest to infinity. Infinities and NaN stay.
    """
    exponent, lost = U32.type(0x7F80_0000), U32.type(0x1FFF)
    is_odd = bits >> 13 & 1
    rounded = (bits + lost // 2 + is_odd) & ~lost
    return np.where(bits & exponent == exponent, bits, rounded)


@dataclass(frozen=True)
class BulkCopy:
    """Bytes that threads have the tensor memory accelerator move, some for each."""

    index: int  # of the instruction
    group: Group  # the threads
    # By lane and element: where in global memory, whether there is such an element, and
    # whether its place in shared memory is moved, too.
    addresses: Lanes
    in_tensor: Mask
    is_moved: Mask
    offsets: Lanes  # of the elements in shared memory, from a thread's place on
    dtype: Dtype  # of the elements
    swizzle_bytes: int = 0
    rounds_to_tf32: bool = False  # as it loads

    def start_load(
        self, batch: Batch, place: Value, barrier: Value, blocks: Value | None = None
    ) -> None:
        """Starts a copy to shared memory; an mbarrier hears of its bytes.

        Args:
            batch: Of the threads.
            place: Where to, by lane.
            barrier: Which mbarrier, by lane.
            blocks: A bit for each block of the cluster that gets the copy, at the same
                place, and whose mbarrier hears of it; the one that the address names if
                not given.
        """
        barriers = batch.shared_places(self.index, self.group, barrier)
        places = batch.shared_places(self.index, self.group, place)
        if barriers is None or places is None:
            return
        if blocks is None:
            self._start_load(batch, places, barriers)
            return
        if not np.all(blocks.known):
            batch.tell(self.index, self.group, "copies to blocks that are unknown")
            return
        masks = np.broadcast_to(blocks.bits, self.group.size).astype(np.int64)
        size = batch.layout.cluster_size
        if not masks.all() or (masks >> size).any():
            what = f"copies to blocks {masks.max():#b} of a cluster of {size}"
            batch.tell(self.index, self.group, what)
        for rank in range(size):
            chosen = masks >> rank & 1 == 1
            if (copy := self._select(chosen)) is not None:
                owners = copy.group.blocks // size * size + rank
                copy._start_load(
                    batch, (owners, places[1][chosen]), (owners, barriers[1][chosen])
                )

    def _select(self, chosen: Mask) -> "BulkCopy | None":
        """What some of the threads move; None if those are none."""
        group = self.group.select(chosen)
        if group is None:
            return None
        return replace(
            self,
            group=group,
            addresses=self.addresses[chosen],
            in_tensor=self.in_tensor[chosen],
            is_moved=self.is_moved[chosen],
        )

    def _start_load(
        self,
        batch: Batch,
        places: tuple[Lanes, Lanes],
        barriers: tuple[Lanes, Lanes],
    ) -> None:
        races = batch.races
        actor = races and races.starts(
            self.index, self.group, is_async=True, kind=LOADS
        )
        if batch.lives and actor:
            batch.lives.reach(actor, self.group, places[0])

        def deliver() -> None:
            self._load(batch, *places)
            if races and actor:
                races.write(*self._moved(batch, actor, *places), self.dtype.itemsize)
                races.send_done_to(barriers, actor)
            n_bytes = self.is_moved.sum(axis=1) * self.dtype.itemsize
            batch.mbarriers.expect(*barriers, -n_bytes)

        batch.deliveries.start(deliver)

    def start_store(self, batch: Batch, place: Value) -> None:
        """Starts a copy to global memory, which is part of the lanes' next group."""
        places = batch.shared_places(self.index, self.group, place)
        if places is None:
            return
        races = batch.races
        actor = races and races.starts(
            self.index, self.group, is_async=True, kind=STORES
        )

        def act(chosen: Mask) -> None:
            if not batch.alive[self.group.numbers].all():
                batch.tell(self.index, self.group, "is not waited for before the end")
            if races and actor:
                races.read(*self._moved(batch, actor, *places), self.dtype.itemsize)
                races.is_done(actor)
            self._store(batch, *places, chosen)

        batch.queues["bulk copies"].start(self.group.numbers, act)

    def _load(self, batch: Batch, owners: Lanes, starts: Lanes) -> None:
        bits = np.zeros(self.addresses.shape, self.dtype)
        known = np.ones(self.addresses.shape, np.bool_)
        contents = batch.memory.contents
        if contents is not None and self.in_tensor.any():
            found = contents.load_at(self.addresses[self.in_tensor], self.dtype)
            bits[self.in_tensor], known[self.in_tensor] = found
            is_known = np.logical_and.reduce(known, axis=1)
            batch.tell_unwritten(self.index, self.group, starts, is_known, "global")
            if self.rounds_to_tf32:
                bits = rounded_to_tf32(bits)
        where = self.is_moved
        value = Value(bits[where], known[where])
        batch.shared.store_places(*self._shared(owners, starts), value, self.dtype)

    def _store(self, batch: Batch, owners: Lanes, starts: Lanes, chosen: Mask) -> None:
        contents = batch.memory.contents
        if contents is None:
            return
        found = batch.shared.load_places(*self._shared(owners, starts), self.dtype)
        bits = np.zeros(self.addresses.shape, self.dtype)
        known = np.zeros(self.addresses.shape, np.bool_)
        bits[self.is_moved], known[self.is_moved] = found
        where = self.in_tensor & chosen[:, np.newaxis]
        is_known = np.logical_and.reduce(known | ~where, axis=1)
        batch.tell_unwritten(self.index, self.group, starts, is_known)
        value = Value(bits[where], known[where])
        if where.any():
            contents.store_at(self.addresses[where], value, self.dtype)

    def _moved(
        self, batch: Batch, actor: Actor, owners: Lanes, starts: Lanes
    ) -> tuple[Actor, Lanes]:
        """Who moves each element, and where it lies in all shared memory."""
        width = self.dtype.itemsize
        places, inside = batch.shared.places(*self._shared(owners, starts), width)
        movers = actor.repeated(self.addresses.shape[1])
        movers = movers.select(self.is_moved.reshape(-1))
        if inside is None:
            return movers, places
        return movers.select(inside), places[inside]

    def _shared(self, owners: Lanes, starts: Lanes) -> tuple[Lanes, Lanes]:
        """Owner and place of each element that is moved."""
        places = swizzled(starts[:, np.newaxis] + self.offsets, self.swizzle_bytes)
        owners = np.broadcast_to(owners[:, np.newaxis], places.shape)
        return owners[self.is_moved], places[self.is_moved]


def copy_of_box(decoded: Decoded, *, is_store: bool) -> Execute:
    """`cp.async.bulk.tensor`: a thread moves what of a box lies in the tensor.

    Only the side of global memory is counted.
    """
    has_box = not any(each.startswith(_OTHER_BOXES) for each in decoded.modifiers)
    access = Access(decoded.instruction.index, is_store, 0)
    operand, other = (0, 1) if is_store else (1, 0)
    address, coordinates = decoded.address(operand), decoded.coordinates(operand)
    place = decoded.address(other)
    barrier = None if is_store else decoded.address(2)
    blocks = blocks_of(decoded, 3)

    def execute(batch: Batch, group: Group) -> None:
        if not (is_store or batch.has_contents):
            batch.lose(Part("shared", group))
        maps = batch.memory.tensor_maps if has_box else {}
        described = _map_at(address(batch, group), maps)
        corner_values = [each(batch, group) for each in coordinates]
        is_known = all(settled(each.known) is True for each in corner_values)
        if (
            described is None
            or len(corner_values) != len(described.box)
            or not is_known
        ):
            batch.count(access, Part("global", group))
            batch.tell(access.index, group, "copies a box that is unknown")
            return
        corner = [
            np.broadcast_to(signed(bits).astype(np.int64), group.size)
            for bits, _ in corner_values
        ]
        if not batch.has_contents:
            starts, lengths = _rows(described, corner)
            batch.count(access, Part("global", group, starts, lengths))
            return
        copy = _elements(described, corner, access.index, group)
        if is_store:
            copy.start_store(batch, place(batch, group))
        elif barrier is not None:
            copy.start_load(
                batch,
                place(batch, group),
                barrier(batch, group),
                blocks and blocks(batch, group),
            )

    return execute


def blocks_of(decoded: Decoded, position: int) -> Operand | None:
    """The operand that tells which blocks get a copy, if several may."""
    is_told = decoded.has("multicast::cluster")
    return decoded.source(position, None) if is_told else None


def _elements(
    tensor_map: TensorMap, corner: Sequence[Lanes], index: int, group: Group
) -> BulkCopy:
    """The copy of each lane's box, element by element.

    Args:
        tensor_map: describes the tensor.
        corner: the first element of each lane's box, by dimension.
        index: of the instruction.
        group: the lanes.
    """
    width = tensor_map.element_bytes
    shape = group.size, -1
    addresses = np.full((group.size, 1), tensor_map.address)
    inside = np.ones((group.size, 1), np.bool_)
    steps = (width, *tensor_map.strides)
    # The last dimension is the outermost.
    for axis in reversed(range(len(tensor_map.box))):
        numbers = corner[axis][:, np.newaxis] + np.arange(tensor_map.box[axis])
        fits = (numbers >= 0) & (numbers < tensor_map.sizes[axis])
        moves = np.where(fits, numbers, 0) * steps[axis]
        addresses = (addresses[:, :, np.newaxis] + moves[:, np.newaxis]).reshape(shape)
        inside = (inside[:, :, np.newaxis] & fits[:, np.newaxis]).reshape(shape)
    return BulkCopy(
        index=index,
        group=group,
        addresses=addresses,
        in_tensor=inside,
        is_moved=np.ones_like(inside),
        offsets=np.arange(addresses.shape[1]) * width,
        dtype=np.dtype(f"u{width}"),
        swizzle_bytes=tensor_map.swizzle_bytes,
        rounds_to_tf32=tensor_map.rounds_to_tf32,
    )


def _map_at(address: Value, maps: Mapping[int, TensorMap]) -> TensorMap | None:
    """The tensor map that all lanes name; None if that is unknown."""
    bits, known = address
    if settled(known) is not True or (bits != bits[0]).any():
        return None
    return maps.get(int(bits[0]))


def _rows(tensor_map: TensorMap, corner: Sequence[Lanes]) -> tuple[Lanes, Lanes]:
    """For each lane where the rows of its box begin, and their bytes in the tensor.

    Args:
        tensor_map: describes the tensor.
        corner: the first element of each lane's box, by dimension.
    """
    width = tensor_map.element_bytes
    first = np.clip(corner[0], 0, tensor_map.sizes[0])
    last = np.clip(corner[0] + tensor_map.box[0], 0, tensor_map.sizes[0])
    starts = (tensor_map.address + first * width)[:, np.newaxis]
    lengths = ((last - first) * width)[:, np.newaxis]
    outer = zip(
        corner[1:],
        tensor_map.sizes[1:],
        tensor_map.strides,
        tensor_map.box[1:],
        strict=True,
    )
    for begin, size, stride, count_of_box in outer:
        places = begin[:, np.newaxis] + np.arange(count_of_box)
        inside = (places >= 0) & (places < size)
        steps = np.where(inside, places, 0) * stride
        shape = len(begin), -1
        starts = (starts[:, np.newaxis] + steps[:, :, np.newaxis]).reshape(shape)
        lengths = (lengths[:, np.newaxis] * inside[:, :, np.newaxis]).reshape(shape)
    return starts, lengths
