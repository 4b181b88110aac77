"""Tiles of attention: which a program owns, how they are read and written."""

import triton
import triton.language as tl

from triton_kernels.attention.scores import seeing_queries, visible_keys
from triton_kernels.common.math import INTERPRETED
from triton_kernels.common.ptx import inline_ptx
from triton_kernels.common.vec import known_multiple


@triton.jit
def queries_of_program(n_heads, n_queries, BLOCK_M: tl.constexpr):
    """Batch, head and first query of what a program computes.

    Programs that run at the same time read the keys and values of few heads, which stay
    in the L2. Of a head the last queries come first: causal ones see the most keys.
    """
    n_tiles = tl.cdiv(n_queries, BLOCK_M)
    index = tl.program_id(0).to(tl.int64)
    matrix, tile = index // n_tiles, n_tiles - 1 - index % n_tiles
    return matrix // n_heads, matrix % n_heads, tile * BLOCK_M


@triton.jit
def keys_of_program(tile_query, n_queries, n_keys, window, BLOCK_M: tl.constexpr):
    """The keys that any of its queries sees, and those that all of them see.

    Both as the first and the end, like visible_keys.
    """
    last_query = tl.minimum(tile_query + BLOCK_M, n_queries) - 1
    begin, all_end = visible_keys(tile_query, n_queries, n_keys, window[0], window[1])
    all_begin, end = visible_keys(last_query, n_queries, n_keys, window[0], window[1])
    return begin, end, all_begin, all_end


@triton.jit
def owned_keys(n_kv_heads, n_keys, BLOCK_N: tl.constexpr):
    """Batch, head of k and v, and first key of what a program of a backward computes.

    Likewise, but the first keys come first: causal queries see those the most.
    """
    n_tiles = tl.cdiv(n_keys, BLOCK_N)
    index = tl.program_id(0).to(tl.int64)
    matrix, tile = index // n_tiles, index % n_tiles
    return matrix // n_kv_heads, matrix % n_kv_heads, tile * BLOCK_N


@triton.jit
def queries_of_owned_keys(tile_key, n_queries, n_keys, window, BLOCK_N: tl.constexpr):
    """The queries that see any of these keys, and those that see all of them.

    Both as the first and the end, like seeing_queries.
    """
    last_key = tl.minimum(tile_key + BLOCK_N, n_keys) - 1
    begin, all_end = seeing_queries(tile_key, n_queries, n_keys, window[0], window[1])
    all_begin, end = seeing_queries(last_key, n_queries, n_keys, window[0], window[1])
    return begin, end, all_begin, all_end


@triton.jit
def matrix_of(
    ptr,
    batch,
    head,
    stride_batch,
    stride_row,
    stride_head,
    DIVISIBILITY: tl.constexpr,
):
    """A head of q, k, v or out: where it begins, and the stride of its rows.

    Strides are multiples of DIVISIBILITY, which decides how wide rows can be read.
    """
    ptr += batch * known_multiple(stride_batch, DIVISIBILITY)
    ptr += head * known_multiple(stride_head, DIVISIBILITY)
    return ptr, known_multiple(stride_row, DIVISIBILITY)


@triton.jit
def contiguous_matrix(ptr, batch, head, n_rows, n_heads, head_dim):
    """A head of a contiguous tensor, likewise."""
    return ptr + (batch * n_rows * n_heads + head) * head_dim, n_heads * head_dim


@triton.jit
def sees(first_key, end_key, start, keys):
    """Which keys, counted from start, queries see that see those from first_key on.

    Which queries see keys is the same question, with the two exchanged.

    The numbers are compared in 32 bits: there are as many comparisons as scores.
    """
    n_before = tl.minimum(tl.maximum(first_key - start, 0), keys.shape[0])
    n_seen = tl.minimum(tl.maximum(end_key - start, 0), keys.shape[0])
    n_before, n_seen = n_before.to(tl.int32)[:, None], n_seen.to(tl.int32)[:, None]
    return (n_before <= keys[None, :]) & (keys[None, :] < n_seen)


@triton.jit
def load_tile(matrix, start, rows, cols, row_end, col_end):
    """A tile of a matrix, with zeros past the ends; where row_end is None, no row is.

    `rows`, counted from start, lie along one dimension of it, `cols` along the other.
    """
    ptr, stride_row = matrix
    mask = cols < col_end
    if row_end is not None:
        mask = mask & (rows < row_end - start)
    offsets = rows.to(tl.int64) * stride_row + cols
    return tl.load(ptr + start * stride_row + offsets, mask=mask, other=0.0)


@triton.jit
def store_tile(matrix, x, rows, cols, row_end, col_end):
    """Writes x, rounded once, as far as rows and columns exist."""
    ptr, stride_row = matrix
    tl.store(
        ptr + rows.to(tl.int64) * stride_row + cols,
        x.to(ptr.dtype.element_ty),
        mask=(rows < row_end) & (cols < col_end),
    )


@triton.jit
def fast_exp2(x):
    """2^x with a relative error of 2^-22. Results below 2^-126 become 0."""
    if INTERPRETED:
        return tl.exp2(x)
    return inline_ptx("ex2.approx.ftz.f32 $0, $1;", "=f, f", x)
