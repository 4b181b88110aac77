"""The first rung: a program makes a word for each of its elements.

A block of Philox has four words, of which each element uses one: neighbours compute the
same block four times.
"""

import triton
import triton.language as tl

from triton_kernels.common.philox import random_word


# A kernel for each kind of seed and of p would only be the same one again.
@triton.jit(do_not_specialize=["seed", "threshold"])
def dropout_first_kernel(
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
    BLOCK_N: tl.constexpr,
):
    # -- tile: a program owns BLOCK_N neighbouring elements
    i = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = i < n_elements
    row, col = i // n_cols, i % n_cols

    # -- load: a tile; and the seed, if it is not a number but in memory, where each
    # replay of a CUDA graph finds it anew
    if seed_ptr is not None:
        seed = tl.load(seed_ptr)
    x = tl.load(x_ptr + row * x_stride_row + col * x_stride_col, mask=mask)

    # -- mask: in float32; no word reaches the threshold of p = 1, 2^32
    keep = random_word(i, seed).to(tl.int64) >= threshold
    out = tl.where(keep, x.to(tl.float32) * scale, 0.0)

    # -- store: rounded once
    tl.store(out_ptr + i, out.to(out_ptr.dtype.element_ty), mask=mask)
