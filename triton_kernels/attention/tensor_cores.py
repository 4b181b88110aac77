"""The third rung: the tensor cores multiply, and only tiles at an edge have masks.

For float16 and bfloat16. Tiles of k and v are copied by cp.async while others are
multiplied. Probabilities stay in registers: rounded to 16 bits, they are an operand of
the second product. Of the tiles that the program's queries see, most are seen by all of
them; those are a loop of their own, which compares no indices. This is the kernel for
GPUs before Hopper, and for tensors that TMA cannot copy.
"""

import triton
import triton.language as tl

from triton_kernels.attention.scores import cap, visible_keys
from triton_kernels.attention.sequences import queries_of_sequence
from triton_kernels.attention.tiles import (
    fast_exp2,
    keys_of_program,
    load_tile,
    matrix_of,
    sees,
    store_tile,
)
from triton_kernels.common.math import LOG2_E, finite_origin
from triton_kernels.common.vec import known_multiple


@triton.jit
def add_keys(
    state, q, k, v, is_seen, scale, softcap, exponent_unit, IS_PLAIN: tl.constexpr
):
    """What was summed up so far, and with it the values of a tile of keys.

    Without is_seen all queries see all of its keys.
    """
    sums, row_sum, row_max = state
    scores = tl.dot(q, k)
    if not IS_PLAIN:
        scores = cap(scores * scale, softcap)
    if is_seen is not None:
        scores = tl.where(is_seen, scores, -float("inf"))

    # Softmax: what the sums so far are relative to may have changed.
    old_max, row_max = row_max, tl.maximum(row_max, tl.max(scores, axis=1))
    origin = finite_origin(row_max)
    rescale = fast_exp2((old_max - origin) * exponent_unit)
    p = fast_exp2((scores - origin[:, None]) * exponent_unit)
    row_sum = row_sum * rescale + tl.sum(p, axis=1)
    sums = tl.dot(p.to(v.dtype), v, sums * rescale[:, None])
    return sums, row_sum, row_max


@triton.jit
def attention_tensor_cores_kernel(
    out_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    lse_ptr,  # (n_batches, n_heads, n_queries)
    q_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    k_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    v_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    n_heads,
    n_kv_heads,
    n_queries,
    n_keys,
    head_dim,
    out_stride_batch,
    out_stride_row,
    out_stride_head,
    q_stride_batch,
    q_stride_row,
    q_stride_head,
    k_stride_batch,
    k_stride_row,
    k_stride_head,
    v_stride_batch,
    v_stride_row,
    v_stride_head,
    scale,
    softcap,
    window_left,
    window_right,
    n_sequences,
    q_offsets_ptr,  # (n_sequences + 1), or None
    k_offsets_ptr,  # (n_sequences + 1), or None
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    IS_PLAIN: tl.constexpr,
    DIVISIBILITY: tl.constexpr,
):
    # -- tile: a program owns BLOCK_M queries, and walks over the keys that they see
    sequences = n_queries, n_keys, n_sequences, q_offsets_ptr, k_offsets_ptr
    sequence, head, tile_query = queries_of_sequence(n_heads, sequences, BLOCK_M)
    n_queries, n_keys, q_batch, k_batch, _, _, statistic, per_head = sequence
    kv_head = head // (n_heads // n_kv_heads)
    out_strides = out_stride_batch, out_stride_row, out_stride_head
    q_strides = q_stride_batch, q_stride_row, q_stride_head
    k_strides = k_stride_batch, k_stride_row, k_stride_head
    v_strides = v_stride_batch, v_stride_row, v_stride_head
    out = matrix_of(out_ptr, q_batch, head, *out_strides, DIVISIBILITY)
    q_matrix = matrix_of(q_ptr, q_batch, head, *q_strides, DIVISIBILITY)
    k_matrix = matrix_of(k_ptr, k_batch, kv_head, *k_strides, DIVISIBILITY)
    v_matrix = matrix_of(v_ptr, k_batch, kv_head, *v_strides, DIVISIBILITY)
    lse_ptr += statistic + head * per_head
    head_dim = known_multiple(head_dim, DIVISIBILITY)
    rows, cols = tl.arange(0, BLOCK_M), tl.arange(0, HEAD_DIM)
    keys = tl.arange(0, BLOCK_N)
    window = window_left, window_right
    begin, end, all_begin, all_end = keys_of_program(
        tile_query, n_queries, n_keys, window, BLOCK_M
    )
    # From full_begin on, whole tiles of keys are seen by all queries.
    full_begin = begin + tl.cdiv(all_begin - begin, BLOCK_N) * BLOCK_N
    n_full_keys = tl.maximum(all_end - full_begin, 0) // BLOCK_N * BLOCK_N

    # Where scores are scaled by a positive number and no more, that is left to the
    # exponent.
    unit = scale if IS_PLAIN else 1.0

    # -- compute: the tiles with masks, before and behind the others, and then these
    q = load_tile(
        *(q_matrix, tile_query, rows[:, None], cols[None, :], n_queries, head_dim)
    )
    sums = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    row_max = tl.full([BLOCK_M], -float("inf"), tl.float32)
    first_key, end_key = visible_keys(
        tile_query + rows, n_queries, n_keys, window_left, window_right
    )
    for masked in range(begin, end - n_full_keys, BLOCK_N):
        start = masked + tl.where(masked < full_begin, 0, n_full_keys)
        k = load_tile(k_matrix, start, keys[None, :], cols[:, None], end, head_dim)
        v = load_tile(v_matrix, start, keys[:, None], cols[None, :], end, head_dim)
        is_seen = sees(first_key, end_key, start, keys)
        sums, row_sum, row_max = add_keys(
            *((sums, row_sum, row_max), q, k, v, is_seen),
            *(scale, softcap, unit * LOG2_E, IS_PLAIN),
        )
    for start in range(full_begin, full_begin + n_full_keys, BLOCK_N):
        k = load_tile(k_matrix, start, keys[None, :], cols[:, None], None, head_dim)
        v = load_tile(v_matrix, start, keys[:, None], cols[None, :], None, head_dim)
        sums, row_sum, row_max = add_keys(
            *((sums, row_sum, row_max), q, k, v, None),
            *(scale, softcap, unit * LOG2_E, IS_PLAIN),
        )

    # -- store: rounded once; 0 for a query that sees no key
    inverse = tl.where(row_sum == 0.0, 0.0, 1.0 / row_sum)
    queries = tile_query + rows
    store_tile(
        *(out, sums * inverse[:, None], queries[:, None], cols[None, :]),
        *(n_queries, head_dim),
    )
    lse = finite_origin(row_max) * unit + tl.log(row_sum)
    tl.store(lse_ptr + queries, lse, mask=queries < n_queries)
