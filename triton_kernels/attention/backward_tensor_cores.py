"""The third rung: the tensor cores multiply, and only tiles at an edge have masks.

For float16 and bfloat16. Programs own keys, or queries, as in the second rung. Tiles of
what they walk over are copied by cp.async while others are multiplied; a copy serves
two products, as it is and transposed. Probabilities and gradients of scores stay in
registers: rounded to 16 bits, they are an operand of the next product. This is the
kernel for GPUs before Hopper, and for tensors that TMA cannot copy.
"""

import triton
import triton.language as tl

from triton_kernels.attention.scores import (
    cap,
    cap_derivative,
    seeing_queries,
    visible_keys,
)
from triton_kernels.attention.sequences import keys_of_sequence, queries_of_sequence
from triton_kernels.attention.tiles import (
    contiguous_matrix,
    fast_exp2,
    keys_of_program,
    load_tile,
    matrix_of,
    queries_of_owned_keys,
    sees,
    store_tile,
)
from triton_kernels.common.math import LOG2_E, finite_origin
from triton_kernels.common.vec import known_multiple


@triton.jit
def powers_of_2(scores, lse, scale, softcap, IS_PLAIN: tl.constexpr):
    """Scores as softmax gets them, and the exponents that make them probabilities.

    Where scores are only scaled, that is left to the exponents.
    """
    unit = scale
    if not IS_PLAIN:
        scores = cap(scores * scale, softcap)
        unit = 1.0
    return scores, scores * (unit * LOG2_E) - finite_origin(lse) * LOG2_E


@triton.jit
def attention_backward_keys_tensor_cores_kernel(
    grad_k_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    grad_v_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    grad_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    q_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    k_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    v_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    lse_ptr,  # (n_batches, n_heads, n_queries)
    delta_ptr,  # (n_batches, n_heads, n_queries)
    n_heads,
    n_kv_heads,
    n_queries,
    n_keys,
    head_dim,
    grad_stride_batch,
    grad_stride_row,
    grad_stride_head,
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
    # -- tile: a program owns BLOCK_N keys, and walks over the queries that see them
    sequences = n_queries, n_keys, n_sequences, q_offsets_ptr, k_offsets_ptr
    sequence, kv_head, tile_key = keys_of_sequence(
        n_heads, n_kv_heads, sequences, BLOCK_N
    )
    n_queries, n_keys, q_batch, k_batch, _, first_key, statistic, per_head = sequence
    grad_strides = grad_stride_batch, grad_stride_row, grad_stride_head
    q_strides = q_stride_batch, q_stride_row, q_stride_head
    k_strides = k_stride_batch, k_stride_row, k_stride_head
    v_strides = v_stride_batch, v_stride_row, v_stride_head
    k_matrix = matrix_of(k_ptr, k_batch, kv_head, *k_strides, DIVISIBILITY)
    v_matrix = matrix_of(v_ptr, k_batch, kv_head, *v_strides, DIVISIBILITY)
    head_dim = known_multiple(head_dim, DIVISIBILITY)
    rows, keys = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    cols = tl.arange(0, HEAD_DIM)[None, :]
    window = window_left, window_right
    begin, end, all_begin, all_end = queries_of_owned_keys(
        tile_key, n_queries, n_keys, window, BLOCK_N
    )

    # -- compute: over all heads that share the keys, and the queries that see any of
    # them; masked where not all see all
    k = load_tile(k_matrix, tile_key, keys[:, None], cols, n_keys, head_dim)
    v = load_tile(v_matrix, tile_key, keys[:, None], cols, n_keys, head_dim)
    grad_k = tl.zeros([BLOCK_N, HEAD_DIM], tl.float32)
    grad_v = tl.zeros([BLOCK_N, HEAD_DIM], tl.float32)
    n_sharing = n_heads // n_kv_heads
    n_tiles = tl.cdiv(end - begin, BLOCK_M).to(tl.int32)
    # A single loop: copies are ahead from one head to the next, too.
    for step in range(n_sharing * n_tiles):
        head = kv_head * n_sharing + step // n_tiles
        start = begin + step % n_tiles * BLOCK_M
        grad_matrix = matrix_of(grad_ptr, q_batch, head, *grad_strides, DIVISIBILITY)
        q_matrix = matrix_of(q_ptr, q_batch, head, *q_strides, DIVISIBILITY)
        q = load_tile(q_matrix, start, rows[:, None], cols, end, head_dim)
        grad = load_tile(grad_matrix, start, rows[:, None], cols, end, head_dim)
        row = statistic + head * per_head + start
        is_query = rows < tl.minimum(end - start, BLOCK_M).to(tl.int32)
        lse = tl.load(lse_ptr + row + rows, mask=is_query, other=0.0)
        delta = tl.load(delta_ptr + row + rows, mask=is_query, other=0.0)

        scores, exponents = powers_of_2(
            tl.dot(k, tl.trans(q)), lse[None, :], scale, softcap, IS_PLAIN
        )
        if (start < all_begin) | (start + BLOCK_M > all_end):
            first_query, end_query = seeing_queries(
                tile_key + keys, n_queries, n_keys, window_left, window_right
            )
            is_seen = sees(first_query, end_query, start, rows)
            exponents = tl.where(is_seen, exponents, -float("inf"))
        p = fast_exp2(exponents)
        grad_v = tl.dot(p.to(grad.dtype), grad, grad_v)

        # Sums that begin at -delta take no registers for it.
        minus_delta = tl.broadcast_to(-delta[None, :], [BLOCK_N, BLOCK_M])
        grad_scores = p * tl.dot(v, tl.trans(grad), minus_delta)
        if not IS_PLAIN:
            grad_scores *= cap_derivative(scores, softcap)
        grad_k = tl.dot(grad_scores.to(q.dtype), q, grad_k)

    # -- store: rounded once; 0 for a key that no query sees
    place = first_key, kv_head, 1, n_kv_heads, head_dim
    grad_k_matrix = contiguous_matrix(grad_k_ptr, *place)
    grad_v_matrix = contiguous_matrix(grad_v_ptr, *place)
    keys = (tile_key + keys)[:, None]
    store_tile(grad_k_matrix, grad_k * scale, keys, cols, n_keys, head_dim)
    store_tile(grad_v_matrix, grad_v, keys, cols, n_keys, head_dim)


@triton.jit
def attention_backward_queries_tensor_cores_kernel(
    grad_q_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    grad_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    q_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    k_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    v_ptr,  # (n_batches, n_keys, n_kv_heads, head_dim)
    lse_ptr,  # (n_batches, n_heads, n_queries)
    delta_ptr,  # (n_batches, n_heads, n_queries)
    n_heads,
    n_kv_heads,
    n_queries,
    n_keys,
    head_dim,
    grad_stride_batch,
    grad_stride_row,
    grad_stride_head,
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
    n_queries, n_keys, q_batch, k_batch, first_query, _, statistic, per_head = sequence
    kv_head = head // (n_heads // n_kv_heads)
    grad_strides = grad_stride_batch, grad_stride_row, grad_stride_head
    q_strides = q_stride_batch, q_stride_row, q_stride_head
    k_strides = k_stride_batch, k_stride_row, k_stride_head
    v_strides = v_stride_batch, v_stride_row, v_stride_head
    grad_matrix = matrix_of(grad_ptr, q_batch, head, *grad_strides, DIVISIBILITY)
    q_matrix = matrix_of(q_ptr, q_batch, head, *q_strides, DIVISIBILITY)
    k_matrix = matrix_of(k_ptr, k_batch, kv_head, *k_strides, DIVISIBILITY)
    v_matrix = matrix_of(v_ptr, k_batch, kv_head, *v_strides, DIVISIBILITY)
    head_dim = known_multiple(head_dim, DIVISIBILITY)
    rows, keys = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    cols = tl.arange(0, HEAD_DIM)[None, :]
    window = window_left, window_right
    begin, end, all_begin, all_end = keys_of_program(
        tile_query, n_queries, n_keys, window, BLOCK_M
    )
    queries = tile_query + rows
    statistics = statistic + head * per_head + queries
    lse = tl.load(lse_ptr + statistics, mask=queries < n_queries, other=0.0)
    delta = tl.load(delta_ptr + statistics, mask=queries < n_queries, other=0.0)

    # -- compute: over the keys that any of the queries sees; masked where not all do
    q = load_tile(q_matrix, tile_query, rows[:, None], cols, n_queries, head_dim)
    grad = load_tile(grad_matrix, tile_query, rows[:, None], cols, n_queries, head_dim)
    grad_q = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    for start in range(begin, end, BLOCK_N):
        k = load_tile(k_matrix, start, keys[:, None], cols, end, head_dim)
        v = load_tile(v_matrix, start, keys[:, None], cols, end, head_dim)
        scores, exponents = powers_of_2(
            tl.dot(q, tl.trans(k)), lse[:, None], scale, softcap, IS_PLAIN
        )
        is_edge = (start < all_begin) | (start + BLOCK_N > all_end)
        if is_edge | (HEAD_DIM > 128):  # no wgmma would overlap beside a branch
            first_key, end_key = visible_keys(
                queries, n_queries, n_keys, window_left, window_right
            )
            is_seen = sees(first_key, end_key, start, keys)
            exponents = tl.where(is_seen, exponents, -float("inf"))
        p = fast_exp2(exponents)
        grad_scores = p * (tl.dot(grad, tl.trans(v)) - delta[:, None])
        if not IS_PLAIN:
            grad_scores *= cap_derivative(scores, softcap)
        grad_q = tl.dot(grad_scores.to(k.dtype), k, grad_q)

    # -- store: rounded once; 0 for a query that sees no key
    grad_q_matrix = contiguous_matrix(
        grad_q_ptr, first_query, head, 1, n_heads, head_dim
    )
    store_tile(
        grad_q_matrix, grad_q * scale, queries[:, None], cols, n_queries, head_dim
    )
