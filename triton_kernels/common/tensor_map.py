"""Tensor maps, by which TMA finds its way in a tensor: the mirror of tensor_map.cuh.

As it loads float32, TMA rounds it to the nearest numbers of tf32 where the map says so;
tensor cores would cut off the digits that they do not take. From Triton 3.7 on, a
descriptor can ask for that. Before, only what Triton keeps with a compiled kernel can,
which is private: `round_as_loaded` goes when Triton 3.6 does.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.experimental.gluon.nvidia import hopper
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_kernels.common.math import INTERPRETED

Sizes = tuple[int, int, int]

CAN_ASK_TO_ROUND = any(
    each.name == "round_f32_to_tf32" for each in dataclasses.fields(TensorDescriptor)
)
FLOAT32, TFLOAT32 = 7, 11  # of CUtensorMapDataType


class Address(NamedTuple):
    """All that a descriptor asks of a tensor, whose memory it does not keep alive."""

    address: int
    dtype: torch.dtype

    def data_ptr(self) -> int:
        """The address, under the name that a tensor has for it."""
        return self.address


def describe(
    x: Tensor,
    sizes: Sizes,
    strides: Sizes,
    block: Sizes,
    rounds: bool = False,
    layout: Any = None,
) -> Any:
    """How TMA finds blocks of matrices, or of their transposes if those are row-major.

    `sizes` are batches, rows and columns; the stride of rows or that of columns is 1. A
    copy takes a block. `rounds`: whether float32 becomes tf32 as it is loaded. Before
    Triton 3.7, the kernel's maps have to be known to `round_as_loaded` as well.
    `layout`: how a block lies in shared memory, of a kernel in Gluon.
    """
    if strides[2] != 1:
        sizes, strides, block = map(_transposed, (sizes, strides, block))
    if sizes[0] == 1:  # the stride is never taken, but has to fit
        strides = (sizes[1] * strides[1], *strides[1:])
    if INTERPRETED or x.is_meta:  # read by another program than the one that launches
        return _make(x, sizes, strides, block, rounds, layout)
    address = Address(x.data_ptr(), x.dtype)
    return _cached(address, sizes, strides, block, rounds, layout)


def round_as_loaded(
    kernel: Any, names: Callable[[dict[str, Any]], tuple[str, ...]]
) -> None:
    """Has maps of float32 round to tf32, for some parameters of a kernel.

    Those that `names` tells of the constants that it is compiled for. Each time that it
    launches a kernel, Triton 3.6 reads the type of a map's elements from what it has
    compiled. So it is changed once, as soon as that is there.
    """
    if CAN_ASK_TO_ROUND or INTERPRETED:
        return
    compile_kernel = kernel._do_compile

    def compile_and_mark(*args: Any) -> Any:
        compiled = compile_kernel(*args)
        if compiled is None:  # a hook has asked for that
            return None
        described = [
            name
            for name, kind in compiled.src.signature.items()
            if isinstance(kind, str) and kind.startswith("tensordesc")
        ]
        maps = compiled.metadata.tensordesc_meta
        constants = {
            kernel.arg_names[place[0]]: value
            for place, value in compiled.src.constants.items()
        }
        rounded = names(constants)
        for name, each in zip(described, maps, strict=True):
            if name in rounded and each["elem_type"] == FLOAT32:
                each["elem_type"] = TFLOAT32
        return compiled

    kernel._do_compile = compile_and_mark


def _make(
    x: Tensor | Address,
    sizes: Sizes,
    strides: Sizes,
    block: Sizes,
    rounds: bool,
    layout: Any,
) -> Any:
    asked = {"round_f32_to_tf32": True} if rounds and CAN_ASK_TO_ROUND else {}
    if layout is None:
        return TensorDescriptor(x, sizes, strides, block, **asked)
    return hopper.TensorDescriptor(x, sizes, strides, block, layout, **asked)


def _transposed(sizes: Sizes) -> Sizes:
    return sizes[0], sizes[2], sizes[1]


# Finding a descriptor takes a third of the time of making it.
_cached = functools.lru_cache(maxsize=1024)(_make)
