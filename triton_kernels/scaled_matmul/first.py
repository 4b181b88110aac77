"""The first rung: the definition of a product, a program for each small tile of it.

It serves any architecture. Each step reads parts of a column of a and of a row of b, as
bytes, and adds their outer product. Products are added up by the hundred, and then
those sums: along a single chain of additions the rounding errors of thousands would
pile up.
"""

import triton
import triton.language as tl

from triton_kernels.matmul.tiles import tile_at
from triton_kernels.scaled_matmul.float8 import float8_to_float
from triton_kernels.scaled_matmul.scales import load_scales, scaled


@triton.jit
def scaled_matmul_first_kernel(
    out_ptr,  # (M, N)
    a_ptr,  # (M, K)
    b_ptr,  # (K, N)
    scale_a_ptr,  # (M) or, with a stride of 0, (1)
    scale_b_ptr,  # (N) or, likewise, (1)
    M,
    N,
    K,
    a_stride_row,
    b_stride_col,
    scale_a_stride,
    scale_b_stride,
    A_IS_E5M2: tl.constexpr,
    B_IS_E5M2: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # -- tile: a program owns BLOCK_M x BLOCK_N elements
    n_tile_rows, n_tile_cols = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    index = tl.program_id(0).to(tl.int64)
    _batch, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols, GROUP_M=1)
    rows = tile_row * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile_col * BLOCK_N + tl.arange(0, BLOCK_N)
    a_ptr += rows[:, None] * a_stride_row
    b_ptr += cols[None, :] * b_stride_col

    # -- compute: in float32
    accumulator = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, K, 100):
        part = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for _ in range(start, min(start + 100, K)):
            a = tl.load(a_ptr, mask=rows[:, None] < M, other=0)
            b = tl.load(b_ptr, mask=cols[None, :] < N, other=0)
            part += float8_to_float(a, A_IS_E5M2) * float8_to_float(b, B_IS_E5M2)
            a_ptr += 1
            b_ptr += 1
        accumulator += part

    # -- store: after the scales, rounded once
    scale_a = load_scales(scale_a_ptr, rows, M, scale_a_stride)
    scale_b = load_scales(scale_b_ptr, cols, N, scale_b_stride)
    out = scaled(accumulator, scale_a, scale_b, out_ptr.dtype.element_ty)
    out_ptr += rows[:, None] * N + cols[None, :]
    tl.store(out_ptr, out, mask=(rows[:, None] < M) & (cols[None, :] < N))
