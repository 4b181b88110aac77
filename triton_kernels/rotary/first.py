"""The first rung: a program turns a tile of pairs, and copies what lies behind them."""

import triton
import triton.language as tl


@triton.jit
def rotary_first_kernel(
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
    BLOCK_N: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    CONJUGATE: tl.constexpr,
):
    # -- tile: first the pairs of a row, then its other elements
    i = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_size = head_dim - n_pairs
    row, pair = i // row_size, i % row_size
    token, head = row // n_heads, row % n_heads
    batch, step = token // seq_len, token % seq_len
    out_ptr += batch * out_stride_batch + step * out_stride_seq + head * out_stride_head
    x_ptr += batch * x_stride_batch + step * x_stride_seq + head * x_stride_head

    # -- rotate: in float32, rounded once; beyond the tables a position has no angle
    is_pair = (row < n_rows) & (pair < n_pairs)
    position = step
    if offset_ptr is not None:
        position += tl.load(offset_ptr + batch, mask=is_pair, other=0)
    has_angle = is_pair & (position >= 0) & (position < n_positions)
    entry = position * cos_stride_position + pair
    cos = tl.load(cos_ptr + entry, mask=has_angle, other=float("nan")).to(tl.float32)
    sin = tl.load(sin_ptr + entry, mask=has_angle, other=float("nan")).to(tl.float32)
    sin = -sin if CONJUGATE else sin
    first_col = 2 * pair if INTERLEAVED else pair
    second_col = 2 * pair + 1 if INTERLEAVED else n_pairs + pair
    first = tl.load(x_ptr + first_col, mask=is_pair).to(tl.float32)
    second = tl.load(x_ptr + second_col, mask=is_pair).to(tl.float32)
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    tl.store(out_ptr + first_col, (first * cos - second * sin).to(dtype), mask=is_pair)
    tl.store(out_ptr + second_col, (second * cos + first * sin).to(dtype), mask=is_pair)

    # -- copy: the elements behind the pairs
    is_behind = (row < n_rows) & (pair >= n_pairs)
    x = tl.load(x_ptr + n_pairs + pair, mask=is_behind)
    tl.store(out_ptr + n_pairs + pair, x, mask=is_behind)
