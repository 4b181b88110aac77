"""Asynchronous copies between global and shared memory."""

from dataclasses import dataclass

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.bounds import Access
from compare.ptx_simulator.boxes import BulkCopy, blocks_of, copy_of_box
from compare.ptx_simulator.building import Builder, Execute, do_nothing
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.operands import (
    Decoded,
    Operand,
    UnmodelledError,
    mapped,
    parse_integer,
)
from compare.ptx_simulator.races import Actor
from compare.ptx_simulator.spaces import Part, parts
from compare.ptx_simulator.values import (
    BOOL,
    U8,
    U32,
    Bits,
    Dtype,
    Lanes,
    Mask,
    Value,
    constant,
)


def _copy(decoded: Decoded) -> Execute:
    """`cp` in all its forms."""
    if decoded.has("prefetch"):
        return do_nothing
    kind = "bulk copies" if decoded.has("bulk") else "copies"
    if decoded.has("commit_group"):
        return lambda batch, group: batch.queues[kind].commit(group)
    if decoded.has("wait_group"):
        pending = parse_integer(decoded.text(0))
        if pending is None:
            raise UnmodelledError
        return lambda batch, group: batch.queues[kind].wait(group, pending)
    if decoded.has("wait_all"):
        return lambda batch, group: batch.queues[kind].finish(group)
    if decoded.has("mbarrier"):
        return _arrive_after_copies(decoded)
    return _bulk_copy(decoded) if decoded.has("bulk") else _copy_of_threads(decoded)


def _arrive_after_copies(decoded: Decoded) -> Execute:
    """`cp.async.mbarrier.arrive`: arrives once the lanes' copies are done."""
    address, index = decoded.address(0), decoded.instruction.index
    is_counted = decoded.has("noinc")  # as one of the arrivals that are expected

    def execute(batch: Batch, group: Group) -> None:
        places = batch.shared_places(index, group, address(batch, group))
        if places is None or not batch.has_contents:
            return
        ones = np.ones(group.size, np.int64)

        def deliver() -> None:
            batch.queues["copies"].finish(group)
            batch.mbarriers.arrive(*places, ones)

        if not is_counted:
            batch.mbarriers.arrive(*places, -ones)
        batch.deliveries.start(deliver)

    return execute


def _count_ranges(access: Access, address: Operand, size: Operand) -> Execute:
    """Counts accesses to global memory, each of its own size."""

    def execute(batch: Batch, group: Group) -> None:
        (addresses, known), sizes = address(batch, group), size(batch, group)
        lengths = np.broadcast_to(sizes.bits.astype(np.int64), group.size)
        ranges = Value(addresses, known & sizes.known)
        for part in parts("global", group, ranges, lengths):
            batch.count(access, part)

    return execute


def _copy_of_threads(decoded: Decoded) -> Execute:
    """`cp.async.ca`, `cp.async.cg`: what is not read is written as zeros."""
    size = parse_integer(decoded.text(2))
    if size is None:
        raise UnmodelledError
    load, store = (
        Access(decoded.instruction.index, is_store, size, is_plain=False)
        for is_store in (False, True)
    )
    into, source = decoded.address(0), decoded.address(1)
    read_bytes = _bytes_read(decoded, size)
    count_loads = _count_ranges(load, source, read_bytes)

    def execute(batch: Batch, group: Group) -> None:
        count_loads(batch, group)
        for part in parts("shared", group, into(batch, group)):
            batch.count(store, part)
            if not batch.has_contents or part.addresses is None:
                batch.lose(part, size)
                continue
            addresses, sizes = source(batch, part.group), read_bytes(batch, part.group)
            _tell_undefined(batch, load.index, part.group, addresses, sizes)
            copy = _ThreadCopy(
                batch,
                load.index,
                part,
                np.broadcast_to(addresses.bits, part.group.size),
                np.broadcast_to(sizes.bits, part.group.size),
                size,
                _copier(batch, load.index, part.group),
            )
            batch.queues["copies"].start(part.group.numbers, copy.act)

    return execute


def _tell_undefined(
    batch: Batch, index: int, group: Group, addresses: Value, sizes: Value
) -> None:
    """Notes copies of undefined sizes, or from undefined addresses that are read."""
    known = addresses.known & sizes.known
    if known is not True:
        known = sizes.known & (addresses.known | (sizes.bits == 0))
    what = "copies by an address or a size that nothing defines"
    batch.tell_undefined(index, group, known, what)


def _copier(batch: Batch, index: int, group: Group) -> Actor | None:
    if batch.races is None:
        return None
    return batch.races.starts(index, group, is_async=False)


@dataclass(frozen=True)
class _ThreadCopy:
    """A copy of a few bytes by each of some lanes."""

    batch: Batch
    index: int
    part: Part  # where they copy to
    sources: Lanes
    read_bytes: Lanes  # of the bytes that are written; the others are zeros
    size: int  # bytes that are written
    actor: Actor | None  # who does it, where races are looked for

    def act(self, chosen: Mask) -> None:
        """Copies for some of the lanes."""
        group = self.part.group.select(chosen)
        assert group is not None
        assert self.part.addresses is not None
        into, sources = self.part.addresses[chosen], self.sources[chosen]
        n_read = np.minimum(self.read_bytes[chosen], self.size)
        step = U32 if not np.bitwise_or.reduce(n_read) & 3 else U8
        for place in range(0, self.size, step.itemsize):
            reads = n_read > place
            value = self._word(group, sources + place, reads, step)
            self.batch.shared.store(group, into + place, value, step)
        if self.batch.races and self.actor:
            actor = self.actor.select(chosen)
            starts, _ = self.batch.shared.places(group.blocks, into, self.size)
            self.batch.races.write(actor, starts, self.size)
            self.batch.races.is_done(actor)

    def _word(self, group: Group, addresses: Lanes, reads: Mask, step: Dtype) -> Value:
        """What is read where that is asked for, and zeros elsewhere."""
        contents = self.batch.memory.contents
        assert contents is not None
        readers = group.select(reads)
        if readers is None:
            return constant(0, step)
        value = contents.load_at(addresses[reads], step)
        self.batch.tell_unwritten(
            self.index, readers, addresses[reads], value.known, "global"
        )
        if readers is group:
            return value
        bits, known = np.zeros(group.size, step), np.ones(group.size, np.bool_)
        bits[reads], known[reads] = value
        return Value(bits, known)


def _bytes_read(decoded: Decoded, size: int) -> Operand:
    """The bytes that each thread reads; a fourth operand may say fewer, or none."""
    last = decoded.count - decoded.has("L2::cache_hint")
    if last < 4:
        whole = constant(size, U32)
        return lambda batch, group: whole

    def read_bytes(asked: Bits) -> Bits:
        if asked.dtype == BOOL:  # a predicate that says whether to ignore the source
            return np.where(asked, U32.type(0), U32.type(size))
        return asked

    return mapped(decoded.source(3, None), read_bytes)


def _bulk_copy(decoded: Decoded) -> Execute:
    """`cp.async.bulk`, by one thread for all: of some bytes, or a box of a tensor.

    Only the side of global memory is counted.
    """
    if not {"global", "shared"}.issubset(decoded.spaces):
        raise UnmodelledError
    is_store = decoded.spaces.index("global") < decoded.spaces.index("shared")
    if decoded.has("tensor"):
        return copy_of_box(decoded, is_store=is_store)
    access = Access(decoded.instruction.index, is_store, 0)
    outside, inside = (0, 1) if is_store else (1, 0)
    address, place = decoded.address(outside), decoded.address(inside)
    size = decoded.source(2, U32)
    barrier = None if is_store else decoded.address(3)
    blocks = blocks_of(decoded, 4)
    count_ranges = _count_ranges(access, address, size)

    def execute(batch: Batch, group: Group) -> None:
        count_ranges(batch, group)
        if not batch.has_contents:
            if not is_store:
                batch.lose(Part("shared", group))
            return
        lengths = np.broadcast_to(size(batch, group).bits.astype(np.int64), group.size)
        most = np.arange(int(lengths.max()))
        exists = most < lengths[:, np.newaxis]
        starts = np.broadcast_to(address(batch, group).bits, group.size)
        copy = BulkCopy(
            index=access.index,
            group=group,
            addresses=starts[:, np.newaxis] + np.where(exists, most, 0),
            in_tensor=exists,
            is_moved=exists,
            offsets=most,
            dtype=U8,
        )
        place_of = place(batch, group)
        if is_store:
            copy.start_store(batch, place_of)
        elif barrier is not None:
            copy.start_load(
                batch,
                place_of,
                barrier(batch, group),
                blocks and blocks(batch, group),
            )

    return execute


COPIES: dict[str, Builder] = {"cp": _copy}
