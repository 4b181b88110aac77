"""Rounds the number of programs down, so that nobody writes the tail."""

import triton
import triton.language as tl


@triton.jit
def kernel(out_ptr, x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add_without_last_block(out, x, y, n_elements, *strides):
    kernel[(n_elements // 128,)](out, x, y, n_elements, BLOCK_SIZE=128)
