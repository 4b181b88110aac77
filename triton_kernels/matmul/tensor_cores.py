"""The third rung: the tensor cores multiply while the next tiles are on their way.

For float16 and bfloat16, and for float32 where tf32 will do, tl.dot becomes
instructions of the tensor cores. A ring of num_stages tiles of a and b is in shared
memory: those that are multiplied, and those that cp.async still copies. This is the
kernel for GPUs before Hopper, and for tensors that TMA cannot copy.
"""

import triton
import triton.language as tl

from triton_kernels.common.math import INTERPRETED
from triton_kernels.common.ptx import inline_ptx
from triton_kernels.common.vec import known_multiple
from triton_kernels.matmul.tiles import finish, load_bias, load_tile, tile_at


@triton.jit
def round_to_tf32(x):
    """The nearest numbers of tf32, to which the tensor cores would only truncate."""
    if INTERPRETED:
        # Ties round away from zero. inf and NaN, which an addition might change, stay.
        bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
        rounded = tl.where(
            tl.abs(x) < float("inf"), bits.to(tl.float32, bitcast=True), x
        )
    else:
        rounded = inline_ptx("cvt.rna.tf32.f32 $0, $1;", "=r, f", x)
    return rounded


@triton.jit
def matmul_tensor_cores_kernel(
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
    BLOCK_K: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    A_DIVISIBILITY: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
    B_DIVISIBILITY: tl.constexpr,
    OUT_DIVISIBILITY: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    # -- tile: a program owns BLOCK_M x BLOCK_N elements
    n_tile_rows, n_tile_cols = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    index = tl.program_id(0).to(tl.int64)
    batch, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols)
    rows = tile_row * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tile_col * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_ptr += batch * known_multiple(a_stride_batch, A_DIVISIBILITY)
    b_ptr += batch * known_multiple(b_stride_batch, B_DIVISIBILITY)
    a_matrix = a_ptr, M, a_stride_row, a_stride_col
    b_matrix = b_ptr, N, b_stride_col, b_stride_row

    # -- compute: in float32
    accumulator = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, K, BLOCK_K):
        a = load_tile(a_matrix, rows, ks[None, :], k, K, A_ROW_MAJOR, A_DIVISIBILITY)
        b = load_tile(
            b_matrix, cols[None, :], ks[:, None], k, K, not B_ROW_MAJOR, B_DIVISIBILITY
        )
        if a.dtype == tl.float32:
            a, b = round_to_tf32(a), round_to_tf32(b)
        accumulator = tl.dot(a, b, accumulator, input_precision="tf32")

    # -- store: after the epilogue, rounded once
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    out = finish(accumulator, load_bias(bias_ptr, cols, N), ACTIVATION, dtype)
    n_cols = known_multiple(N, OUT_DIVISIBILITY)
    out_ptr += (batch * M + rows) * n_cols + cols[None, :]
    tl.store(out_ptr, out, mask=(rows < M) & (cols[None, :] < n_cols))
