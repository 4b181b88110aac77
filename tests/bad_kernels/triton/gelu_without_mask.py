"""Stores the whole of the last block, most of it past the end of the output."""

import triton
import triton.language as tl

from triton_kernels.common.math import gelu_erf


@triton.jit
def kernel(out_ptr, x_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offsets, mask=offsets < n_elements)
    tl.store(out_ptr + offsets, gelu_erf(x))


def gelu_without_mask(out, x, n_elements, *rest):
    kernel[(triton.cdiv(n_elements, 128),)](out, x, n_elements, BLOCK_SIZE=128)
