"""Rotary position embedding, and its backward, which turns by the negative angle.

  out[first] = x[first] * cos - x[second] * sin
  out[second] = x[second] * cos + x[first] * sin

Layout   out, x: (batch, seq_len, n_heads, head_dim), the last dimension contiguous,
         walked over as rows of head_dim elements. cos, sin: (n_positions, n_pairs).
         Pair i is elements i and n_pairs + i of a row or, interleaved, 2 i and
         2 i + 1. What lies behind the pairs is copied.
Traffic  reads and writes every element of x once: the ceiling is the bandwidth of a
         copy. A program holds neighbouring heads, so that the cosines and sines of a
         position come from the L2 once for several of them.
Limits   computes in float32 and rounds once. A position that is not in the tables
         turns its pairs into NaN; nothing is read out of bounds. Fewer than 2^30 rows.
Mirror   csrc/rotary/rotary.cu
Source   Su et al. 2021, arXiv:2104.09864
"""

import math

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.vec import VEC_BYTES, known_multiple

BLOCK_BYTES = 4096
MIN_BLOCK_N = 16
NUM_WARPS = 4


@triton.jit
def rotary_kernel(
    out_ptr,  # (batch, seq_len, n_heads, head_dim)
    x_ptr,  # (batch, seq_len, n_heads, head_dim)
    cos_ptr,  # (n_positions, n_pairs)
    sin_ptr,  # (n_positions, n_pairs)
    offset_ptr,  # (batch) if HAS_OFFSET
    n_rows,
    seq_len,
    n_heads,
    head_dim,
    n_pairs,
    n_positions,
    out_stride_batch,
    out_stride_seq,
    out_stride_head,
    x_stride_batch,
    x_stride_seq,
    x_stride_head,
    cos_stride_position,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PAIRS_PER_VEC: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    CONJUGATE: tl.constexpr,
):
    # -- tile: a program owns BLOCK_M rows, which are neighbouring heads
    head_dim = known_multiple(head_dim, DIVISIBILITY)
    n_pairs = known_multiple(n_pairs, DIVISIBILITY)
    out_stride_batch = known_multiple(out_stride_batch, DIVISIBILITY)
    out_stride_seq = known_multiple(out_stride_seq, DIVISIBILITY)
    out_stride_head = known_multiple(out_stride_head, DIVISIBILITY)
    x_stride_batch = known_multiple(x_stride_batch, DIVISIBILITY)
    x_stride_seq = known_multiple(x_stride_seq, DIVISIBILITY)
    x_stride_head = known_multiple(x_stride_head, DIVISIBILITY)
    cos_stride_position = known_multiple(cos_stride_position, DIVISIBILITY)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    is_row = rows < n_rows
    tokens = rows // n_heads
    heads = (rows - tokens * n_heads).to(tl.int64)
    batches = tokens // seq_len
    steps = (tokens - batches * seq_len).to(tl.int64)
    batches = batches.to(tl.int64)
    out_ptr += (
        batches * out_stride_batch + steps * out_stride_seq + heads * out_stride_head
    )
    x_ptr += batches * x_stride_batch + steps * x_stride_seq + heads * x_stride_head

    # A position that is not in the table has no angle.
    positions = steps
    if HAS_OFFSET:
        positions += tl.load(offset_ptr + batches, mask=is_row, other=0)
    has_angle = is_row & (positions >= 0) & (positions < n_positions)
    cos_ptr += positions * cos_stride_position
    sin_ptr += positions * cos_stride_position

    # -- rotate: the pairs, in float32, rounded once
    for start in range(0, n_pairs, BLOCK_N):
        pairs = start + tl.arange(0, BLOCK_N)[None, :]
        is_pair = pairs < n_pairs
        if INTERLEAVED:
            cols = 2 * start + tl.arange(0, 2 * BLOCK_N)[None, :]
            mask = is_row & (cols < 2 * n_pairs)
            both = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
            first, second = tl.split(tl.reshape(both, (BLOCK_M, BLOCK_N, 2)))
        else:
            mask = is_row & is_pair
            first = tl.load(x_ptr + pairs, mask=mask, other=0.0).to(tl.float32)
            second = tl.load(x_ptr + n_pairs + pairs, mask=mask, other=0.0)
            second = second.to(tl.float32)
        if INTERLEAVED:
            # In runs as long as a vector of x has pairs: longer ones would have to go
            # from thread to thread through shared memory.
            pairs = tl.max_contiguous(pairs, [1, PAIRS_PER_VEC])
        nan = float("nan")
        cos = tl.load(cos_ptr + pairs, mask=has_angle & is_pair, other=nan)
        sin = tl.load(sin_ptr + pairs, mask=has_angle & is_pair, other=nan)
        cos, sin = cos.to(tl.float32), sin.to(tl.float32)
        if CONJUGATE:
            sin = -sin
        turned = first * cos - second * sin
        second = second * cos + first * sin
        if INTERLEAVED:
            both = tl.reshape(tl.join(turned, second), (BLOCK_M, 2 * BLOCK_N))
            tl.store(out_ptr + cols, both.to(out_ptr.dtype.element_ty), mask=mask)
        else:
            turned = turned.to(out_ptr.dtype.element_ty)
            second = second.to(out_ptr.dtype.element_ty)
            tl.store(out_ptr + pairs, turned, mask=mask)
            tl.store(out_ptr + n_pairs + pairs, second, mask=mask)

    # -- copy: the elements behind the pairs
    for start in range(2 * n_pairs, head_dim, 2 * BLOCK_N):
        cols = start + tl.arange(0, 2 * BLOCK_N)[None, :]
        mask = is_row & (cols < head_dim)
        tl.store(out_ptr + cols, tl.load(x_ptr + cols, mask=mask), mask=mask)


def _launch_rotary(
    out: Tensor,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    offset: Tensor | None,
    n_rows: int,
    seq_len: int,
    n_heads: int,
    head_dim: int,
    n_pairs: int,
    n_positions: int,
    out_stride_batch: int,
    out_stride_seq: int,
    out_stride_head: int,
    x_stride_batch: int,
    x_stride_seq: int,
    x_stride_head: int,
    cos_stride_position: int,
    is_table_float32: bool,
    interleaved: bool,
    conjugate: bool,
) -> None:
    widest = max(n_pairs, triton.cdiv(head_dim - 2 * n_pairs, 2), MIN_BLOCK_N)
    block_pairs = BLOCK_BYTES // (2 * out.element_size())
    block_n = min(triton.next_power_of_2(widest), block_pairs)
    block_m = block_pairs // block_n
    divisibility = math.gcd(
        16,
        head_dim,
        n_pairs,
        out_stride_batch,
        out_stride_seq,
        out_stride_head,
        x_stride_batch,
        x_stride_seq,
        x_stride_head,
        cos_stride_position,
    )
    vec_size = math.gcd(divisibility, VEC_BYTES // out.element_size())
    rotary_kernel[(triton.cdiv(n_rows, block_m),)](
        out,
        x,
        cos,
        sin,
        offset,
        n_rows,
        seq_len,
        n_heads,
        head_dim,
        n_pairs,
        n_positions,
        out_stride_batch,
        out_stride_seq,
        out_stride_head,
        x_stride_batch,
        x_stride_seq,
        x_stride_head,
        cos_stride_position,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        PAIRS_PER_VEC=max(vec_size // 2, 1),
        DIVISIBILITY=divisibility,
        HAS_OFFSET=isinstance(offset, Tensor),
        INTERLEAVED=interleaved,
        CONJUGATE=conjugate,
        num_warps=NUM_WARPS,
        enable_fp_fusion=True,
    )


def rotary(
    out: Tensor,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    offset: Tensor | None,
    n_rows: int,
    seq_len: int,
    n_heads: int,
    head_dim: int,
    n_pairs: int,
    n_positions: int,
    out_stride_batch: int,
    out_stride_seq: int,
    out_stride_head: int,
    x_stride_batch: int,
    x_stride_seq: int,
    x_stride_head: int,
    cos_stride_position: int,
    is_table_float32: bool,
    interleaved: bool,
    rung: int,
) -> None:
    """Turns by the angle."""
    _launch_rotary(
        out,
        x,
        cos,
        sin,
        offset,
        n_rows,
        seq_len,
        n_heads,
        head_dim,
        n_pairs,
        n_positions,
        out_stride_batch,
        out_stride_seq,
        out_stride_head,
        x_stride_batch,
        x_stride_seq,
        x_stride_head,
        cos_stride_position,
        is_table_float32,
        interleaved,
        conjugate=False,
    )


def rotary_backward(
    out: Tensor,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    offset: Tensor | None,
    n_rows: int,
    seq_len: int,
    n_heads: int,
    head_dim: int,
    n_pairs: int,
    n_positions: int,
    out_stride_batch: int,
    out_stride_seq: int,
    out_stride_head: int,
    x_stride_batch: int,
    x_stride_seq: int,
    x_stride_head: int,
    cos_stride_position: int,
    is_table_float32: bool,
    interleaved: bool,
    rung: int,
) -> None:
    """Turns by the negative angle, which is what becomes of a gradient."""
    _launch_rotary(
        out,
        x,
        cos,
        sin,
        offset,
        n_rows,
        seq_len,
        n_heads,
        head_dim,
        n_pairs,
        n_positions,
        out_stride_batch,
        out_stride_seq,
        out_stride_head,
        x_stride_batch,
        x_stride_seq,
        x_stride_head,
        cos_stride_position,
        is_table_float32,
        interleaved,
        conjugate=True,
    )
