"""The twin: a program turns the pairs of several rows, by accesses of 16 bytes."""

import triton
import triton.language as tl

from triton_kernels.common.vec import known_multiple


@triton.jit
def rotary_kernel(
    out_ptr,  # (batch, seq_len, n_heads, head_dim)
    x_ptr,  # (batch, seq_len, n_heads, head_dim)
    cos_ptr,  # (n_positions, n_pairs)
    sin_ptr,  # (n_positions, n_pairs)
    offset_ptr,  # (batch), or None
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
    if offset_ptr is not None:
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
            x = tl.load(x_ptr + cols, mask=mask, other=0.0)
            first, second = tl.split(tl.reshape(x, (BLOCK_M, BLOCK_N, 2)))
            # In runs as long as a vector of x has pairs: longer ones would have to go
            # from thread to thread through shared memory.
            pairs = tl.max_contiguous(pairs, [1, PAIRS_PER_VEC])
        else:
            mask = is_row & is_pair
            first = tl.load(x_ptr + pairs, mask=mask, other=0.0)
            second = tl.load(x_ptr + n_pairs + pairs, mask=mask, other=0.0)
        nan = float("nan")
        cos = tl.load(cos_ptr + pairs, mask=has_angle & is_pair, other=nan)
        sin = tl.load(sin_ptr + pairs, mask=has_angle & is_pair, other=nan)
        first, second = first.to(tl.float32), second.to(tl.float32)
        cos, sin = cos.to(tl.float32), sin.to(tl.float32)
        sin = -sin if CONJUGATE else sin
        out_first = (first * cos - second * sin).to(out_ptr.dtype.element_ty)
        out_second = (second * cos + first * sin).to(out_ptr.dtype.element_ty)
        if INTERLEAVED:
            out = tl.reshape(tl.join(out_first, out_second), (BLOCK_M, 2 * BLOCK_N))
            tl.store(out_ptr + cols, out, mask=mask)
        else:
            tl.store(out_ptr + pairs, out_first, mask=mask)
            tl.store(out_ptr + n_pairs + pairs, out_second, mask=mask)

    # -- copy: the elements behind the pairs
    for start in range(2 * n_pairs, head_dim, 2 * BLOCK_N):
        cols = start + tl.arange(0, 2 * BLOCK_N)[None, :]
        mask = is_row & (cols < head_dim)
        tl.store(out_ptr + cols, tl.load(x_ptr + cols, mask=mask), mask=mask)
