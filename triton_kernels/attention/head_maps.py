"""Tensor maps of four dimensions, those of attention, as tensor_map_4d.cuh has them."""

import functools
from typing import NamedTuple

from torch import Tensor
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from triton_kernels.common.tensor_map import Address

Sizes = tuple[int, int, int, int]


class HeadRows(NamedTuple):
    """A tensor (n_batches, n_rows, n_heads, n_cols) whose columns are neighbours."""

    data: Tensor
    sizes: Sizes
    strides: tuple[int, int, int]  # of batches, rows and heads, in elements

    def have_tensor_map(self) -> bool:
        """Whether there can be a map of it.

        There are elements, and every row begins at a multiple of 16 bytes, a place of
        its own.
        """
        in_16_bytes = 16 // self.data.element_size()
        return (
            min(self.sizes) > 0
            and self.data.data_ptr() % 16 == 0
            and all(
                size == 1
                or (stride > 0 and stride % in_16_bytes == 0 and stride < 1 << 39)
                for size, stride in zip(self.sizes, self.strides, strict=False)
            )
        )

    def describe(self, block_rows: int, block_cols: int) -> TensorDescriptor:
        """How TMA finds block_rows rows of a head, with zeros past its columns.

        The stride of a dimension that has one element does not matter, but has to fit.
        """
        fitting = (self.sizes[3] + 7) // 8 * 8
        batch, row, head = (
            fitting if size == 1 else stride
            for size, stride in zip(self.sizes, self.strides, strict=False)
        )
        block = (1, block_rows, 1, block_cols)
        layout = self.sizes, (batch, row, head, 1), block
        if self.data.is_meta:  # read by another program than the one that launches
            return _described(self.data, *layout)
        return _cached(Address(self.data.data_ptr(), self.data.dtype), *layout)


def contiguous_like(data: Tensor, rows: HeadRows) -> HeadRows:
    """A gradient of these rows, which is contiguous."""
    _, n_rows, n_heads, n_cols = rows.sizes
    return HeadRows(
        data, rows.sizes, (n_rows * n_heads * n_cols, n_heads * n_cols, n_cols)
    )


# Of 16-bit numbers in shared memory: rows of 128 bytes, several of them if need be.
_SWIZZLED = NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)


def _described(
    data: Tensor | Address, sizes: Sizes, strides: Sizes, block: Sizes
) -> TensorDescriptor:
    return TensorDescriptor(data, sizes, strides, block, _SWIZZLED)


# Finding a descriptor takes a third of the time of making it.
_cached = functools.lru_cache(maxsize=1024)(_described)
