"""Tensor maps, by which TMA finds its way in a tensor: the mirror of tensor_map.cuh."""

import functools
from typing import NamedTuple

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_kernels.common.math import INTERPRETED

Sizes = tuple[int, int, int]


class Address(NamedTuple):
    """All that a descriptor asks of a tensor, whose memory it does not keep alive."""

    address: int
    dtype: torch.dtype

    def data_ptr(self) -> int:
        """The address, under the name that a tensor has for it."""
        return self.address


def describe(x: Tensor, sizes: Sizes, strides: Sizes, block: Sizes) -> TensorDescriptor:
    """How TMA finds blocks of matrices, or of their transposes if those are row-major.

    `sizes` are batches, rows and columns; the stride of rows or that of columns is 1. A
    copy takes a block.
    """
    if strides[2] != 1:
        sizes, strides, block = map(_transposed, (sizes, strides, block))
    if sizes[0] == 1:  # the stride is never taken, but has to fit
        strides = (sizes[1] * strides[1], *strides[1:])
    if INTERPRETED or x.is_meta:  # read by another program than the one that launches
        return TensorDescriptor(x, sizes, strides, block)
    return _cached(Address(x.data_ptr(), x.dtype), sizes, strides, block)


def _transposed(sizes: Sizes) -> Sizes:
    return sizes[0], sizes[2], sizes[1]


# Finding a descriptor takes a third of the time of making it.
_cached = functools.lru_cache(maxsize=1024)(TensorDescriptor)
