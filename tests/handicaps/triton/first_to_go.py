"""Tells the caches to give up first what is loaded."""

import triton
import triton.language as tl


@triton.jit
def first_to_go(out_ptr, x_ptr):
    offsets = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    x = tl.load(x_ptr + offsets, eviction_policy="evict_first")
    tl.store(out_ptr + offsets, 1.0 / (1.0 + tl.exp(-x)))
