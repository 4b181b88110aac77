"""Transposes tiles of 32 x 32."""

import triton
import triton.language as tl


@triton.jit
def transpose(out_ptr, x_ptr):
    numbers = tl.arange(0, 32)
    offsets = tl.program_id(0) * 1024 + numbers[:, None] * 32 + numbers[None, :]
    tl.store(out_ptr + offsets, tl.trans(tl.load(x_ptr + offsets)))
