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

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.philox import random_words
from triton_kernels.common.vec import load, load_strided, store

# As in gelu: 128 threads, each with two 16-byte accesses to a tensor.
VEC_BYTES = 16
BLOCK_BYTES = 4096
NUM_WARPS = 4


# A kernel for each kind of seed and of p would only be the same one again.
@triton.jit(do_not_specialize=["seed", "threshold"])
def dropout_kernel(
    out_ptr,  # (n_elements)
    x_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
    x_stride_row,
    x_stride_col,
    seed_ptr,  # (1), or None
    seed: tl.int64,
    threshold: tl.int64,
    scale: tl.float32,
    BLOCK_SIZE: tl.constexpr,
    RUN_SIZE: tl.constexpr,
    STRIDED: tl.constexpr,
):
    # -- tile: a program owns BLOCK_SIZE neighbouring elements
    block_start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    n_valid = n_elements - block_start
    offsets = tl.arange(0, BLOCK_SIZE)

    # -- load: past the end nothing is read; and the seed, if it is not a number but in
    # memory, where each replay of a CUDA graph finds it anew
    if seed_ptr is not None:
        seed = tl.load(seed_ptr)
    if STRIDED:
        elements = block_start + offsets
        x = load_strided(
            x_ptr, elements, n_elements, n_cols, x_stride_row, x_stride_col
        )
    else:
        x = load(x_ptr + block_start, offsets, n_valid, BLOCK_SIZE)

    # -- mask: in float32, rounded once; no word reaches the threshold of p = 1, 2^32
    if tl.cast(threshold, tl.int64) < 2**32:
        words = random_words(block_start, BLOCK_SIZE, RUN_SIZE, seed)
        keep = words >= tl.cast(threshold, tl.uint32)
        out = tl.where(keep, x.to(tl.float32) * scale, 0.0)
    else:
        out = tl.zeros([BLOCK_SIZE], tl.float32)

    # -- store: past the end nothing is written
    out = out.to(out_ptr.dtype.element_ty)
    store(out_ptr + block_start, offsets, out, n_valid, BLOCK_SIZE)


def dropout(
    out: Tensor,
    x: Tensor,
    n_elements: int,
    n_cols: int,
    x_stride_row: int,
    x_stride_col: int,
    seed_ptr: Tensor | None,
    seed: int,
    threshold: int,
    scale: float,
    rung: int,
) -> None:
    """Launches dropout_kernel on the current device and stream."""
    block_size = BLOCK_BYTES // out.element_size()
    dropout_kernel[(triton.cdiv(n_elements, block_size),)](
        out,
        x,
        n_elements,
        n_cols,
        x_stride_row,
        x_stride_col,
        seed_ptr,
        seed,
        threshold,
        scale,
        BLOCK_SIZE=block_size,
        RUN_SIZE=VEC_BYTES // out.element_size(),
        STRIDED=n_cols != n_elements or x_stride_col != 1,
        num_warps=NUM_WARPS,
        enable_fp_fusion=True,
    )
