"""The twin: a thread makes a block of random words for every four neighbours."""

import triton
import triton.language as tl

from triton_kernels.common.elementwise import load_elements, own_tile, store_elements
from triton_kernels.common.philox import random_words


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
    VEC_SIZE: tl.constexpr,
    STRIDED: tl.constexpr,
):
    # -- tile: a program owns BLOCK_SIZE neighbouring elements
    RUN_SIZE: tl.constexpr = 128 // out_ptr.dtype.element_ty.primitive_bitwidth
    tile = own_tile(n_elements, n_cols, BLOCK_SIZE, VEC_SIZE)

    # -- load: past the end nothing is read; and the seed, if it is not a number but in
    # memory, where each replay of a CUDA graph finds it anew
    if seed_ptr is not None:
        seed = tl.load(seed_ptr)
    x = load_elements(x_ptr, tile, x_stride_row, x_stride_col, STRIDED)

    # -- mask: in float32; no word reaches the threshold of p = 1, 2^32
    if tl.cast(threshold, tl.int64) < 2**32:
        word = random_words(tile, RUN_SIZE, seed)
        out = tl.where(
            word >= tl.cast(threshold, tl.uint32), x.to(tl.float32) * scale, 0.0
        )
    else:
        out = tl.zeros(x.shape, tl.float32)

    # -- store: rounded once; past the end nothing is written
    store_elements(out_ptr, tile, out)
