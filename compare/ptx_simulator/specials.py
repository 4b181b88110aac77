"""The special registers that a kernel can read."""

from collections.abc import Callable
from math import prod

import numpy as np

from compare.ptx_simulator.group import WARP, Layout
from compare.ptx_simulator.values import U32, U64, Bits, Value, constant, unknown

_AXES = ("x", "y", "z")


def special_register(name: str, layout: Layout) -> Value:
    """The value of `%tid.x` and the like; unknown if it is another for each run."""
    register, _, axis = name.removeprefix("%").partition(".")
    launch, thread = layout.launch, layout.thread_of_lane
    places = {
        "tid": (thread, launch.block),
        "ctaid": (layout.blocks[layout.block_of_lane], launch.grid),
    }
    if axis in _AXES and register in places:
        numbers, sizes = places[register]
        position = _AXES.index(axis)
        size, before = sizes[position], prod(sizes[:position])
        if before > 1:  # a division takes as long as ten sums
            numbers = numbers // before
        return _value(numbers % size if prod(sizes) > before * size else numbers)
    if axis in _AXES and register[1:] in places:  # ntid, nctaid
        return constant(places[register[1:]][1][_AXES.index(axis)], U32)
    if "cluster" in register:
        return _of_cluster(register, axis, layout)
    if register == "dynamic_smem_size":
        return constant(launch.dynamic_shared_bytes, U32)
    bit = np.uint64(1) << (thread % WARP).astype(U64)
    by_lane: dict[str, Callable[[], Bits]] = {
        "laneid": lambda: thread % WARP,
        "warpid": lambda: thread // WARP,
        "lanemask_eq": lambda: bit,
        "lanemask_lt": lambda: bit - 1,
        "lanemask_le": lambda: 2 * bit - 1,
        "lanemask_gt": lambda: ~(2 * bit - 1),
        "lanemask_ge": lambda: ~(bit - 1),
    }
    if register in by_lane:
        return _value(by_lane[register]())
    return unknown(U64 if "64" in name else U32)


def _of_cluster(register: str, axis: str, layout: Layout) -> Value:
    """Where a block is in its cluster, and where that is in the grid."""
    launch = layout.launch
    sizes, blocks = launch.cluster, layout.blocks[layout.block_of_lane]
    x, y, _ = launch.grid
    block = (blocks % x, blocks // x % y, blocks // (x * y))
    inside = [each % size for each, size in zip(block, sizes, strict=True)]
    of_axis = {
        "cluster_ctaid": inside,
        "cluster_nctaid": [np.full(1, each) for each in sizes],
        "clusterid": [e // size for e, size in zip(block, sizes, strict=True)],
        "nclusterid": [
            np.full(1, -(-count // size))
            for count, size in zip(launch.grid, sizes, strict=True)
        ],
    }
    if register in of_axis and axis in _AXES:
        return _value(of_axis[register][_AXES.index(axis)])
    rank = inside[0] + sizes[0] * (inside[1] + sizes[1] * inside[2])
    whole = {
        "cluster_ctarank": rank,
        "cluster_nctarank": np.full(1, layout.cluster_size),
        "is_explicit_cluster": np.full(1, layout.cluster_size > 1),
    }
    return _value(whole[register]) if register in whole else unknown(U32)


def _value(numbers: Bits) -> Value:
    bits = numbers.astype(U32)
    return Value(bits[:1] if (bits == bits[0]).all() else bits, known=True)
