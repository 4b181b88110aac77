"""Asynchronous copies between global and shared memory."""

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.boxes import copy_of_box
from compare.ptx_simulator.building import Builder, Execute, do_nothing
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.loads_and_stores import Part, count, forget_memory, parts
from compare.ptx_simulator.meter import Access
from compare.ptx_simulator.operands import Decoded, Operand, parse_integer
from compare.ptx_simulator.values import BOOL, U32, Value, both, constant

_NO_COPY = (
    "commit_group",
    "mbarrier",  # cp.async.mbarrier.arrive: waits for copies
    "prefetch",
    "wait_all",
    "wait_group",
)


def _copy(decoded: Decoded) -> Execute | None:
    """`cp` in all its forms."""
    if any(decoded.has(each) for each in _NO_COPY):
        return do_nothing
    if decoded.has("bulk"):
        return _bulk_copy(decoded)
    return _copy_of_threads(decoded)


# ---- By every thread for itself ------------------------------------------------------


def _copy_of_threads(decoded: Decoded) -> Execute | None:
    """`cp.async.ca`, `cp.async.cg`: what is not read is written as zeros."""
    size = parse_integer(decoded.text(2))
    if size is None:
        return None
    index = decoded.instruction.index
    load, store = (Access(index, is_store, size) for is_store in (False, True))
    into, source = decoded.address(0), decoded.address(1)
    read_bytes = _bytes_read(decoded, size)

    def execute(batch: Batch, group: Group) -> None:
        (addresses, known), (sizes, sizes_known) = (
            source(batch, group),
            read_bytes(batch, group),
        )
        sizes = np.broadcast_to(sizes.astype(np.int64), group.size)
        address = Value(addresses, both(known, sizes_known))
        for part in parts("global", group, address):
            count(batch, load, part, sizes[part.chosen])
        for part in parts("shared", group, into(batch, group)):
            count(batch, store, part)
            forget_memory(batch, part, size)

    return execute


def _bytes_read(decoded: Decoded, size: int) -> Operand:
    """How many bytes each thread reads: a fourth operand may say so, or say none."""
    last = decoded.count - decoded.has("L2::cache_hint")
    if last < 4:
        whole = constant(size, U32)
        return lambda batch, group: whole
    if not decoded.is_predicate(3):
        return decoded.source(3, U32)
    is_ignored = decoded.source(3, BOOL)

    def read_bytes(batch: Batch, group: Group) -> Value:
        bits, known = is_ignored(batch, group)
        return Value(np.where(bits, U32.type(0), U32.type(size)), known)

    return read_bytes


# ---- By one thread for all -----------------------------------------------------------


def _bulk_copy(decoded: Decoded) -> Execute | None:
    """`cp.async.bulk`: of so many bytes, or of a box of a tensor.

    Only the side of global memory is counted.
    """
    spaces = [each.partition("::")[0] for each in decoded.modifiers]
    if "global" not in spaces or "shared" not in spaces:
        return None
    is_store = spaces.index("global") < spaces.index("shared")
    if decoded.has("tensor"):
        return copy_of_box(decoded, is_store=is_store)
    access = Access(decoded.instruction.index, is_store, 0)
    global_address = decoded.address(0 if is_store else 1)
    shared_address = decoded.address(1 if is_store else 0)
    size = decoded.source(2, U32)

    def execute(batch: Batch, group: Group) -> None:
        (addresses, known), (sizes, sizes_known) = (
            global_address(batch, group),
            size(batch, group),
        )
        sizes = np.broadcast_to(sizes.astype(np.int64), group.size)
        address = Value(addresses, both(known, sizes_known))
        for part in parts("global", group, address):
            count(batch, access, part, sizes[part.chosen])
        if not is_store:
            for part in parts("shared", group, shared_address(batch, group)):
                forget_memory(batch, Part("shared", part.group, None, part.chosen), 0)

    return execute


COPIES: dict[str, Builder] = {"cp": _copy}
