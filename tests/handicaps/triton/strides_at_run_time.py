"""Reads along the stride that is the long one, which only shows at run time."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["stride_long", "stride_one"])
def strides_at_run_time(out_ptr, x_ptr, stride_long, stride_one):
    offsets = tl.arange(0, 1024)
    x_ptr += tl.program_id(0) * 1024
    x = tl.load(x_ptr + offsets % 32 * stride_long + offsets // 32 * stride_one)
    out_ptr += tl.program_id(0) * 1024
    tl.store(out_ptr + offsets, 1.0 / (1.0 + tl.exp(-x)))
