"""Nobody tells the compiler what divides `n_elements`: each element has its mask."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n_elements"])
def mask_not_divisible(out_ptr, x_ptr, n_elements):
    offsets = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, 1.0 / (1.0 + tl.exp(-x)), mask=mask)
