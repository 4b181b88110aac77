"""The first rung: the definition of a product, a program for each small tile of it.

Each step reads parts of a column of a and of a row of b and adds their outer product:
an element that has been loaded serves 32 multiplications. Products are added up by the
hundred, and then those sums: along a single chain of additions the rounding errors of
thousands would pile up.
"""

import triton
import triton.language as tl

from triton_kernels.matmul.tiles import finish, load_bias, tile_at


@triton.jit
def matmul_first_kernel(
    out_ptr,  # (n_batches, M, N)
    a_ptr,  # (n_batches, M, K)
    b_ptr,  # (n_batches, K, N)
    bias_ptr,  # (N), or None
    M,
    N,
    K,
    a_stride_batch,
    a_stride_row,
    a_stride_col,
    b_stride_batch,
    b_stride_row,
    b_stride_col,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    # -- tile: a program owns BLOCK_M x BLOCK_N elements
    n_tile_rows, n_tile_cols = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    index = tl.program_id(0).to(tl.int64)
    batch, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols, GROUP_M=1)
    rows = tile_row * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tile_col * BLOCK_N + tl.arange(0, BLOCK_N)
    a_ptr += batch * a_stride_batch + rows * a_stride_row
    b_ptr += batch * b_stride_batch + cols[None, :] * b_stride_col

    # -- compute: in float32
    accumulator = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, K, 100):
        part = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for _ in range(start, min(start + 100, K)):
            a = tl.load(a_ptr, mask=rows < M, other=0.0).to(tl.float32)
            b = tl.load(b_ptr, mask=cols[None, :] < N, other=0.0).to(tl.float32)
            part += a * b
            a_ptr += a_stride_col
            b_ptr += b_stride_row
        accumulator += part

    # -- store: after the epilogue, rounded once
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    out = finish(accumulator, load_bias(bias_ptr, cols, N), ACTIVATION, dtype)
    out_ptr += (batch * M + rows) * N + cols[None, :]
    tl.store(out_ptr, out, mask=(rows < M) & (cols[None, :] < N))
