"""Adds two tensors, either of which may be broadcast.

  out[i] = x[i] + y[i]

Layout   out: contiguous. x, y: read as (n_elements / n_cols, n_cols) with any two
         strides, 0 along a broadcast dimension.
Traffic  reads 2 and writes 1 element each, once: the ceiling is memory bandwidth at 2
         reads to 1 write.
Limits   computes in float32, so float16 and bfloat16 are rounded once.
Mirror   csrc/add/add.cu
Source   Triton's tutorial 01 (vector addition)
"""

from triton_kernels.add.first import add_first_kernel
from triton_kernels.add.twin import add_kernel
from triton_kernels.common.elementwise import plan_elements

# 128 threads, each with one 16-byte access to a tensor: of 16-bit elements as many as
# in CUDA's kernel. On an H200 two accesses are no faster, and of bfloat16 slower.
BLOCK_BYTES = 2048


def add(out, x, y, n_elements, n_cols, *strides, rung):
    """Launches the rung's kernel on the current device and stream."""
    kernels = (add_first_kernel, add_kernel)
    kernel, grid, constants = plan_elements(
        rung, kernels, out, n_elements, n_cols, strides, block_bytes=BLOCK_BYTES
    )
    kernel[grid](out, x, y, n_elements, n_cols, *strides, **constants)
