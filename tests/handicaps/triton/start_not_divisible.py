"""Nobody tells the compiler what divides `start`: it loads and stores 4 bytes."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["start"])
def start_not_divisible(out_ptr, x_ptr, start):
    offsets = start + tl.program_id(0) * 1024 + tl.arange(0, 1024)
    x = tl.load(x_ptr + offsets)
    tl.store(out_ptr + offsets, 1.0 / (1.0 + tl.exp(-x)))
