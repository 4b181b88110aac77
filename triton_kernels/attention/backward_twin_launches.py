"""The launches of the twin's backward, and its tiles.

Queries' gradients are added up in memory, which a kernel prepares before, and from
which one stores them behind.
"""

import math
from typing import NamedTuple

import triton

from triton_kernels.attention.backward_sums import (
    attention_begin_sums_kernel,
    attention_end_sums_kernel,
)
from triton_kernels.attention.backward_twin import attention_backward_kernel
from triton_kernels.attention.head_maps import contiguous_like
from triton_kernels.attention.regimes import Call
from triton_kernels.attention.tables import choose
from triton_kernels.attention.twin_tables import BOX_SIZE
from triton_kernels.common.device import Device, current_device

KEYS_IN_BLOCK = 2 * BOX_SIZE  # of two warpgroups
L2_BYTES = 20 << 20  # of the 50 MB of an H200


class BackwardTile(NamedTuple):
    """A tile, and the calls that it is for: so many queries in a step."""

    head_dim: int  # the largest that it is for
    queries_in_step: int
    num_stages: int

    def serves(self, device: Device, call: Call) -> bool:
        """Whether it is for a call."""
        return call.head_dim <= self.head_dim


# Sums of longer rows leave no registers for a part; three stages of 64 columns, no
# memory for barriers.
BACKWARD_TILES = (
    BackwardTile(64, 128, 2),
    BackwardTile(128, 64, 3),
)


def computes_at_once(call: Call) -> bool:
    """Whether a call is for one of these tiles."""
    return call.head_dim <= BACKWARD_TILES[-1].head_dim


def order_of_keys(n_heads, n_queries, n_tiles, row_bytes, takes_turns, is_causal):
    """How many heads' keys are taken at a time; of how many heads from the last ones.

    So few heads are taken at a time that what their programs read and add up, queries,
    their gradients and sums, stays in the L2, and so many that there are two programs
    for each multiprocessor. Programs that take turns take causal keys from the last
    ones back, as backward_turns.py tells, unless the L2 is far too small for all of
    their queries: from the first keys on, programs read the same ones at the same time.
    The last heads leave no multiprocessor with a long tile in the end.

    n_queries: of all heads that share the keys of one.
    row_bytes: of a query, its gradient, and what is added up.
    """
    head_bytes = n_queries * row_bytes
    n_running = 2 * current_device().n_sms // n_tiles
    heads_at_once = min(max(L2_BYTES // head_bytes, n_running, 1), n_heads)
    bytes_at_once = heads_at_once * head_bytes
    are_from_last = takes_turns and is_causal and bytes_at_once <= 2 * L2_BYTES
    n_from_last = (n_heads - 1) // heads_at_once * heads_at_once
    return heads_at_once, n_from_last if are_from_last else 0


def launch_backward_twin(
    call, grads, sums, rows, results, scale, window, deterministic
):
    """The launches. results: of the forward, with lse's gradient or None."""
    tile = choose(BACKWARD_TILES, call)
    grad_q, grad_k, grad_v = grads
    grad_rows, q_rows, k_rows, v_rows = rows
    out_rows, lse, grad_lse = results
    n_batches, n_queries, n_heads, head_dim = q_rows.sizes
    _, n_keys, n_kv_heads, _ = k_rows.sizes
    n_sums = triton.cdiv(n_queries, tile.queries_in_step) * (
        tile.queries_in_step // BOX_SIZE
    )
    n_all_sums = n_batches * n_heads * n_sums

    def described(rows, n_rows):
        return rows.describe(n_rows, tile.head_dim)

    attention_begin_sums_kernel[(n_all_sums,)](
        *(sums, grad_rows.data, out_rows.data, grad_lse, lse),
        *(n_sums, n_heads, n_queries, head_dim),
        *(*grad_rows.strides, *out_rows.strides),
        HEAD_DIM=tile.head_dim,
        DIVISIBILITY=math.gcd(head_dim, *grad_rows.strides, *out_rows.strides, 16),
        num_warps=4,
        enable_fp_fusion=True,
    )

    n_tiles, n_all_kv_heads = triton.cdiv(n_keys, KEYS_IN_BLOCK), n_batches * n_kv_heads
    row_bytes = tile.head_dim * (2 * q_rows.data.element_size() + sums.element_size())
    order = order_of_keys(
        *(n_all_kv_heads, n_heads // n_kv_heads * n_queries, n_tiles, row_bytes),
        *(deterministic, window[1] < n_queries + n_keys),
    )
    attention_backward_kernel[(n_all_kv_heads * n_tiles,)](
        sums,
        described(contiguous_like(grad_k, k_rows), BOX_SIZE),
        described(contiguous_like(grad_v, v_rows), BOX_SIZE),
        described(grad_rows, tile.queries_in_step),
        described(q_rows, tile.queries_in_step),
        described(k_rows, BOX_SIZE),
        described(v_rows, BOX_SIZE),
        *(n_batches, n_heads, n_kv_heads, n_queries, n_keys),
        *(*order, scale, *window),
        NUM_STAGES=tile.num_stages,
        TAKES_TURNS=deterministic,
        num_warps=4,
        enable_fp_fusion=True,
    )

    attention_end_sums_kernel[(n_all_sums * tile.head_dim // BOX_SIZE,)](
        contiguous_like(grad_q, q_rows).describe(BOX_SIZE, BOX_SIZE),
        *(sums, n_sums, n_heads, scale),
        HEAD_DIM=tile.head_dim,
        num_warps=4,
        enable_fp_fusion=True,
    )
