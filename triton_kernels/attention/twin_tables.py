"""The twin: its tiles, and how a call is cut up into them."""

from typing import NamedTuple

import triton

from triton_kernels.attention.regimes import Call
from triton_kernels.attention.tables import choose
from triton_kernels.attention.tile_order import attention_count_kernel
from triton_kernels.attention.twin import attention_kernel
from triton_kernels.common.device import Device, current_device


class TwinTile(NamedTuple):
    """A tile of the twin, and the calls that it is for."""

    head_dim: int  # the largest that it is for
    block_m: int
    block_n: int
    num_stages: int
    min_queries: int = 0
    box_cols: int = 0  # of one box in shared memory; 0: head_dim

    def serves(self, device: Device, call: Call) -> bool:
        """Whether it is for a call."""
        return call.head_dim <= self.head_dim and self.min_queries <= call.n_queries


# Registers bound a tile, which holds scores, their exponentials and sums for out. In
# Triton a box has powers of two of rows and columns.
TWIN_TILES = (
    TwinTile(64, 192, 128, 4, min_queries=129),
    TwinTile(64, 128, 128, 4),
    TwinTile(96, 128, 128, 2, box_cols=128),
    TwinTile(128, 128, 128, 2),
    TwinTile(192, 128, 64, 3, box_cols=64),
    TwinTile(256, 128, 64, 2),
)
BOX_SIZE = 64  # queries of a warpgroup
L2_BYTES = 32 << 20


def heads_in_l2(n_all_heads, n_rows, row_bytes, sharing):
    """How many heads are computed at a time: they read no more than the L2 can keep.

    That is two matrices of n_rows rows each, and as many heads as `sharing` the same.
    """
    n_heads = triton.cdiv(L2_BYTES, 2 * n_rows * row_bytes) * sharing
    return min(n_heads, n_all_heads)


def launch_twin(call, rows, lse, n_taken, scale, window):
    """The launch of the twin, behind that which starts its count."""
    tile = choose(TWIN_TILES, call)
    out_rows, q_rows, k_rows, v_rows = rows
    n_batches, n_queries, n_heads, head_dim = q_rows.sizes
    _, n_keys, n_kv_heads, _ = k_rows.sizes
    n_sms, box_cols = current_device().n_sms, tile.box_cols or tile.head_dim
    n_all_heads, n_sharing = n_batches * n_heads, n_heads // n_kv_heads
    row_bytes = head_dim * k_rows.data.element_size()
    n_tiles = n_all_heads * triton.cdiv(n_queries, tile.block_m)
    are_even = min(window) >= n_queries + n_keys
    if are_even or n_tiles <= n_sms:
        n_taken = None
    else:
        attention_count_kernel[(1,)](n_taken, num_warps=1, enable_fp_fusion=True)
    attention_kernel[(min(n_tiles, n_sms),)](
        out_rows.describe(BOX_SIZE, box_cols),
        lse,
        n_taken,
        q_rows.describe(BOX_SIZE, box_cols),
        k_rows.describe(tile.block_n, box_cols),
        v_rows.describe(tile.block_n, box_cols),
        *(n_batches, n_heads, n_kv_heads, n_queries, n_keys),
        heads_in_l2(n_all_heads, n_keys, row_bytes, n_sharing),
        *(scale, *window),
        HEAD_DIM=tile.head_dim,
        NUM_CONSUMERS=tile.block_m // BOX_SIZE,
        NUM_STAGES=tile.num_stages,
        num_warps=4,
        enable_fp_fusion=True,
    )
