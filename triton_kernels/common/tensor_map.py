"""Tensor maps, by which TMA finds its way in a tensor: the mirror of tensor_map.cuh."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia import hopper
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_kernels.common.math import INTERPRETED

Sizes = tuple[int, ...]


class Address(NamedTuple):
    """All that a descriptor asks of a tensor, whose memory it does not keep alive."""

    address: int
    dtype: torch.dtype

    def data_ptr(self) -> int:
        """As a tensor has it."""
        return self.address


def describe(
    x: Tensor,
    sizes: Sizes,
    strides: Sizes,
    block: Sizes,
    make: Callable[..., Any] = TensorDescriptor,
) -> Any:
    """How TMA finds blocks of matrices, or of their transposes if those are row-major.

    Args:
        x: The matrices.
        sizes: Batches, rows and columns, or the last two alone.
        strides: Of the same dimensions; that of rows or that of columns is 1.
        block: What a copy takes of each dimension.
        make: Makes a descriptor from these four.
    """
    if strides[-1] != 1:
        sizes, strides, block = map(_transposed, (sizes, strides, block))
    if len(sizes) == 3 and sizes[0] == 1:  # the stride is never taken, but has to fit
        strides = (sizes[1] * strides[1], *strides[1:])
    if INTERPRETED or x.is_meta:  # read by another program than the one that launches
        return make(x, sizes, strides, block)
    return _cached(make, Address(x.data_ptr(), x.dtype), sizes, strides, block)


def make_in_gluon(
    base: Tensor, sizes: Sizes, strides: Sizes, block: Sizes
) -> hopper.TensorDescriptor:
    """A descriptor for Gluon, which also asks how blocks lie in shared memory."""
    dtype = gl.float16 if base.dtype == torch.float16 else gl.bfloat16
    layout = gl.NVMMASharedLayout.get_default_for(list(block), dtype)
    sizes_of = (list(each) for each in (sizes, strides, block))
    return hopper.TensorDescriptor(base, *sizes_of, layout)


def _transposed(sizes: Sizes) -> Sizes:
    return (*sizes[:-2], sizes[-1], sizes[-2])


@functools.lru_cache(maxsize=1024)
def _cached(make: Callable[..., Any], *parts: Any) -> Any:
    """Finding a descriptor takes a third of the time of making it."""
    return make(*parts)
