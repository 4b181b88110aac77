"""The third rung: the tensor cores multiply while the next tiles are on their way.

For float16 and bfloat16, and for float32 where tf32 will do, tl.dot becomes
instructions of the tensor cores. A ring of num_stages tiles of a and b is in shared
memory: those that are multiplied, and those that cp.async still copies. This is the
kernel for GPUs before Hopper, for float32 as tf32, and for small products.
Where there are few tiles, each is cut along k: a program computes a part of one.
"""

import triton
import triton.language as tl

from triton_kernels.common.griddepcontrol import (
    griddepcontrol_launch_dependents,
    griddepcontrol_wait,
)
from triton_kernels.common.math import INTERPRETED
from triton_kernels.common.vec import known_multiple
from triton_kernels.matmul.parts import store_part
from triton_kernels.matmul.split import round_to_tf32
from triton_kernels.matmul.tiles import finish, load_bias, load_tile, tile_at


@triton.jit
def unknown(x):
    """x, an integer, of which the compiler knows nothing any more.

    Within a loop, what depends on it is computed anew in each turn, and takes no
    registers meanwhile.
    """
    if not INTERPRETED:
        if x.dtype == tl.int64:
            x = tl.inline_asm_elementwise(
                "mov.b64 $0, $1;", "=l, l", [x], dtype=tl.int64, is_pure=False, pack=1
            )
        else:
            x = tl.inline_asm_elementwise(
                "mov.b32 $0, $1;", "=r, r", [x], dtype=tl.int32, is_pure=False, pack=1
            )
    return x


@triton.jit
def with_unknown_stride(matrix, K_IS_CONTIGUOUS: tl.constexpr):
    """A matrix whose addresses are computed anew in each step.

    Where elements come one by one, the address of each would take two registers.
    """
    ptr, n_outer, stride_outer, stride_k = matrix
    if K_IS_CONTIGUOUS:
        stride_outer = unknown(stride_outer)
    else:
        stride_k = unknown(stride_k)
    return ptr, n_outer, stride_outer, stride_k


@triton.jit
def load_tiles(
    a_matrix,
    b_matrix,
    k,
    end,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    A_DIVISIBILITY: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
    B_DIVISIBILITY: tl.constexpr,
    HAS_WORDS: tl.constexpr,
    OFFSET_BITS: tl.constexpr,
):
    """Those of a and b from k on, with zeros from `end` on."""
    offset_type: tl.constexpr = tl.int32 if OFFSET_BITS == 32 else tl.int64
    rows = tl.arange(0, BLOCK_M)[:, None].to(offset_type)
    cols = tl.arange(0, BLOCK_N)[None, :].to(offset_type)
    ks = tl.arange(0, BLOCK_K).to(offset_type)
    if not HAS_WORDS:
        a_matrix = with_unknown_stride(a_matrix, A_ROW_MAJOR)
        b_matrix = with_unknown_stride(b_matrix, not B_ROW_MAJOR)
    a = load_tile(a_matrix, rows, ks[None, :], k, end, A_ROW_MAJOR, A_DIVISIBILITY)
    b = load_tile(b_matrix, cols, ks[:, None], k, end, not B_ROW_MAJOR, B_DIVISIBILITY)
    return a, b


@triton.jit(do_not_specialize=["n_parts", "part_steps", "next_begins"])
def matmul_tensor_cores_kernel(
    out_ptr,  # (n_batches, M, N)
    a_ptr,  # (n_batches, M, K)
    b_ptr,  # (n_batches, K, N)
    bias_ptr,  # (N), or None
    parts_ptr,  # (2 n_programs, BLOCK_M, BLOCK_N); None where no tile is shared
    M,
    N,
    K,
    a_stride_batch,
    a_stride_row,
    a_stride_col,
    b_stride_batch,
    b_stride_row,
    b_stride_col,
    n_parts,
    part_steps,
    next_begins,  # the next launch: 1, at once; 2, as this one stores; or 0, behind it
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr,
    A_DIVISIBILITY: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr,
    B_DIVISIBILITY: tl.constexpr,
    OUT_DIVISIBILITY: tl.constexpr,
    HAS_WORDS: tl.constexpr,
    OFFSET_BITS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    # -- tile: a program owns BLOCK_M x BLOCK_N elements, or a part of them: part_steps
    # steps along k, of which each tile has n_parts times as many
    n_tile_rows, n_tile_cols = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    index = tl.program_id(0).to(tl.int64)
    if next_begins == 1:
        griddepcontrol_launch_dependents()
    first_k, end = 0, K
    if parts_ptr is not None:
        first_k = tl.program_id(0) % n_parts * part_steps * BLOCK_K
        end = tl.minimum(K, first_k + part_steps * BLOCK_K)
        index = index // n_parts
    batch, tile_row, tile_col = tile_at(index, n_tile_rows, n_tile_cols)
    row, col = tile_row * BLOCK_M, tile_col * BLOCK_N
    a_ptr += batch * known_multiple(a_stride_batch, A_DIVISIBILITY)
    b_ptr += batch * known_multiple(b_stride_batch, B_DIVISIBILITY)
    if A_ROW_MAJOR:
        a_ptr += row * known_multiple(a_stride_row, A_DIVISIBILITY)
    else:
        a_ptr += row
    if B_ROW_MAJOR:
        b_ptr += col
    else:
        b_ptr += col * known_multiple(b_stride_col, B_DIVISIBILITY)
    n_rows = tl.minimum(M - row, BLOCK_M).to(tl.int32)
    n_cols = tl.minimum(N - col, BLOCK_N).to(tl.int32)
    a_matrix = a_ptr, n_rows, a_stride_row, a_stride_col
    b_matrix = b_ptr, n_cols, b_stride_col, b_stride_row

    # -- compute: in float32. Elements of 2 bytes that come one by one cannot bypass the
    # registers, so those of the next step are on their way to some during this one
    accumulator = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    griddepcontrol_wait()
    if not HAS_WORDS:
        next_a, next_b = load_tiles(
            *(a_matrix, b_matrix, first_k, end, BLOCK_M, BLOCK_N, BLOCK_K),
            *(A_ROW_MAJOR, A_DIVISIBILITY, B_ROW_MAJOR, B_DIVISIBILITY),
            *(HAS_WORDS, OFFSET_BITS),
        )
    for k in range(first_k, end, BLOCK_K):
        if not HAS_WORDS:
            a, b = next_a, next_b
            next_a, next_b = load_tiles(
                *(a_matrix, b_matrix, k + BLOCK_K, end, BLOCK_M, BLOCK_N, BLOCK_K),
                *(A_ROW_MAJOR, A_DIVISIBILITY, B_ROW_MAJOR, B_DIVISIBILITY),
                *(HAS_WORDS, OFFSET_BITS),
            )
        else:
            a, b = load_tiles(
                *(a_matrix, b_matrix, k, end, BLOCK_M, BLOCK_N, BLOCK_K),
                *(A_ROW_MAJOR, A_DIVISIBILITY, B_ROW_MAJOR, B_DIVISIBILITY),
                *(HAS_WORDS, OFFSET_BITS),
            )
        if a.dtype == tl.float32:
            a, b = round_to_tf32(a), round_to_tf32(b)
        accumulator = tl.dot(a, b, accumulator, input_precision="tf32")

    # -- store: what another launch adds up, or else after the epilogue, rounded once
    if next_begins == 2:
        griddepcontrol_launch_dependents()
    if parts_ptr is not None:
        store_part(parts_ptr, accumulator, tl.program_id(0), 0, n_rows)
    else:
        dtype: tl.constexpr = out_ptr.dtype.element_ty
        rows = row + tl.arange(0, BLOCK_M)[None, :, None]
        cols = col + tl.arange(0, BLOCK_N)
        out = finish(accumulator, load_bias(bias_ptr, cols, N), ACTIVATION, dtype)
        cols, n_cols = cols[None, None, :], known_multiple(N, OUT_DIVISIBILITY)
        is_inside = (rows < M) & (cols < n_cols)
        out_ptr += (batch * M + rows) * n_cols + cols
        tl.store(out_ptr, out[None, :, :], mask=is_inside)
