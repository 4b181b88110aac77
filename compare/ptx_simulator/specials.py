"""The special registers that a kernel can read."""

from collections.abc import Callable

import numpy as np

from compare.ptx_simulator.group import WARP, Layout
from compare.ptx_simulator.values import U32, U64, Bits, Value, constant, unknown

_AXES = ("x", "y", "z")


def special_register(name: str, layout: Layout) -> Value:
    """What a special register holds; unknown if it depends on where and when one runs.

    Args:
        name: as in PTX, such as `%tid.x`.
        layout: the lanes that read it.
    """
    register, _, axis = name.removeprefix("%").partition(".")
    launch = layout.launch
    by_axis = {
        "tid": (layout.thread_of_lane, launch.block),
        "ctaid": (layout.blocks[layout.block_of_lane], launch.grid),
    }
    if register in by_axis and axis in _AXES:
        numbers, (x, y, _) = by_axis[register]
        place = {"x": numbers % x, "y": numbers // x % y, "z": numbers // (x * y)}[axis]
        return _value(place)
    sizes = {"ntid": launch.block, "nctaid": launch.grid}
    if register in sizes and axis in _AXES:
        return constant(sizes[register][_AXES.index(axis)], U32)
    if register == "dynamic_smem_size":
        return constant(launch.dynamic_shared_bytes, U32)
    lane = layout.thread_of_lane % WARP
    bit = np.uint64(1) << lane.astype(U64)
    masks: dict[str, Callable[[], Bits]] = {
        "laneid": lambda: lane,
        "warpid": lambda: layout.thread_of_lane // WARP,
        "lanemask_eq": lambda: bit,
        "lanemask_lt": lambda: bit - 1,
        "lanemask_le": lambda: 2 * bit - 1,
        "lanemask_gt": lambda: ~(2 * bit - 1),
        "lanemask_ge": lambda: ~(bit - 1),
    }
    if register in masks:
        return _value(masks[register]())
    return unknown(U64 if "64" in name else U32)


def _value(numbers: Bits) -> Value:
    bits = numbers.astype(U32)
    return Value(bits[:1] if (bits == bits[0]).all() else bits, known=True)
