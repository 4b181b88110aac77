"""Dropout: each element becomes 0 with probability p, the others are scaled up.

  out[i] = word[i] >= threshold ? x[i] * scale : 0
  threshold = round(p * 2^32), scale = 1 / (1 - p)
  word[i]: word i % 4 of the Philox4x32-10 block with counter i / 4 and key seed

Layout   out: contiguous; i counts its elements. x: read as (n_elements / n_cols,
         n_cols) with any two strides.
Traffic  reads and writes every element once: the ceiling is the bandwidth of a copy.
         No mask is stored: the backward is the same kernel, with the same seed, over
         the gradient, and makes the same words again.
Limits   multiplies in float32, so float16 and bfloat16 are rounded once. p counts in
         steps of 2^-32.
Mirror   csrc/dropout/dropout.cu
Source   Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"
"""

from triton_kernels.common.elementwise import plan_elements
from triton_kernels.dropout.first import dropout_first_kernel
from triton_kernels.dropout.twin import dropout_kernel


def dropout(
    out, x, n_elements, n_cols, *strides, seed_ptr, seed, threshold, scale, rung
):
    """Launches the rung's kernel on the current device and stream."""
    kernels = (dropout_first_kernel, dropout_kernel)
    numbers = (seed_ptr, seed, threshold, scale)
    # Words are made for 16 bytes at a time: for shorter vectors they would go from
    # thread to thread through shared memory.
    kernel, grid, constants = plan_elements(
        rung, kernels, out, n_elements, n_cols, strides, whole_vectors=True
    )
    kernel[grid](out, x, n_elements, n_cols, *strides, *numbers, **constants)
