"""The twin where rows are long.

Their sums leave no registers for a part of queries' gradients, and two kernels compute
two of the products once more, as in the rung before. One owns keys, the other queries.
A warp loads, two warpgroups multiply: from where TMA has copied both matrices of a
product, for one of them while the other computes exponentials.
"""

from typing import NamedTuple

import triton

from triton_kernels.attention.backward_keys import attention_backward_keys_kernel
from triton_kernels.attention.backward_queries import attention_backward_queries_kernel
from triton_kernels.attention.head_maps import contiguous_like
from triton_kernels.attention.regimes import Call
from triton_kernels.attention.tables import choose
from triton_kernels.attention.twin_tables import BOX_SIZE, heads_in_l2
from triton_kernels.common.device import Device


class LongRowsTile(NamedTuple):
    """Tiles of the two kernels, and the calls that they are for.

    A block of keys takes so many queries in a step, a block of queries so many keys.
    """

    head_dim: int  # the largest that it is for
    keys_in_block: int
    queries_in_step: int
    query_stages: int
    keys_in_step: int
    k_stages: int
    v_stages: int
    queries_in_block: int = 128

    def serves(self, device: Device, call: Call) -> bool:
        """Whether it is for a call."""
        return call.head_dim <= self.head_dim


# Registers bound a step, which has two matrices of scores besides the sums; shared
# memory bounds the stages.
LONG_ROWS_TILES = (LongRowsTile(256, 64, 64, 2, 64, 2, 1),)


def launch_backward_long_rows(call, grads, rows, statistics, scale, window):
    """The launches of the two kernels."""
    tile = choose(LONG_ROWS_TILES, call)
    grad_q, grad_k, grad_v = grads
    grad_rows, q_rows, k_rows, v_rows = rows
    n_batches, n_queries, n_heads, head_dim = q_rows.sizes
    _, n_keys, n_kv_heads, _ = k_rows.sizes
    row_bytes = head_dim * q_rows.data.element_size()
    sizes = n_batches, n_heads, n_kv_heads, n_queries, n_keys
    n_sharing = n_heads // n_kv_heads

    def described(rows, n_rows=BOX_SIZE):
        return rows.describe(n_rows, tile.head_dim)

    options = {"num_warps": 4, "enable_fp_fusion": True}
    n_tiles = triton.cdiv(n_keys, tile.keys_in_block)
    n_in_l2 = heads_in_l2(n_batches * n_kv_heads, n_sharing * n_queries, row_bytes, 1)
    attention_backward_keys_kernel[(n_batches * n_kv_heads * n_tiles,)](
        described(contiguous_like(grad_k, k_rows)),
        described(contiguous_like(grad_v, v_rows)),
        described(grad_rows, tile.queries_in_step),
        described(q_rows, tile.queries_in_step),
        described(k_rows),
        described(v_rows),
        *(*statistics, *sizes, n_in_l2, scale, *window),
        NUM_STAGES=tile.query_stages,
        **options,
    )
    n_tiles = triton.cdiv(n_queries, tile.queries_in_block)
    n_in_l2 = heads_in_l2(n_batches * n_heads, n_keys, row_bytes, n_sharing)
    attention_backward_queries_kernel[(n_batches * n_heads * n_tiles,)](
        described(contiguous_like(grad_q, q_rows)),
        described(grad_rows),
        described(q_rows),
        described(k_rows, tile.keys_in_step),
        described(v_rows, tile.keys_in_step),
        *(*statistics, *sizes, n_in_l2, scale, *window),
        K_STAGES=tile.k_stages,
        V_STAGES=tile.v_stages,
        **options,
    )
