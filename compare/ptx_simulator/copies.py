"""Asynchronous copies between global and shared memory."""

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.boxes import copy_of_box
from compare.ptx_simulator.building import Builder, Execute, do_nothing
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.meter import Access
from compare.ptx_simulator.operands import (
    Decoded,
    Operand,
    UnmodelledError,
    mapped,
    parse_integer,
)
from compare.ptx_simulator.spaces import Part, parts
from compare.ptx_simulator.values import BOOL, U32, Bits, Value, constant

_NO_COPY = (
    "commit_group",
    "mbarrier",  # cp.async.mbarrier.arrive: waits for copies
    "prefetch",
    "wait_all",
    "wait_group",
)


def _copy(decoded: Decoded) -> Execute:
    """`cp` in all its forms."""
    if any(decoded.has(each) for each in _NO_COPY):
        return do_nothing
    return _bulk_copy(decoded) if decoded.has("bulk") else _copy_of_threads(decoded)


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
        Access(decoded.instruction.index, is_store, size) for is_store in (False, True)
    )
    into = decoded.address(0)
    count_loads = _count_ranges(load, decoded.address(1), _bytes_read(decoded, size))

    def execute(batch: Batch, group: Group) -> None:
        count_loads(batch, group)
        for part in parts("shared", group, into(batch, group)):
            batch.count(store, part)
            batch.lose(part, size)

    return execute


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
    source = decoded.address(0 if is_store else 1)
    count_ranges = _count_ranges(access, source, decoded.source(2, U32))

    def execute(batch: Batch, group: Group) -> None:
        count_ranges(batch, group)
        if not is_store:
            batch.lose(Part("shared", group))

    return execute


COPIES: dict[str, Builder] = {"cp": _copy}
