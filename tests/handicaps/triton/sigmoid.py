"""1 / (1 + exp(-x)), as it should be."""

import triton
import triton.language as tl


@triton.jit
def sigmoid(out_ptr, x_ptr):
    offsets = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    x = tl.load(x_ptr + offsets)
    tl.store(out_ptr + offsets, 1.0 / (1.0 + tl.exp(-x)))
