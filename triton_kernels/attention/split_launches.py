"""The launches of a call whose keys are split: two, or one if there is one part."""

import triton

from triton_kernels.attention.combine import attention_combine_kernel
from triton_kernels.attention.split import attention_split_kernel
from triton_kernels.common.device import current_device


def launch_split(call, rows, lse, workspace, divisibility, parameters, n_splits):
    """The launches, the second of which reads what the first leaves.

    workspace: parts, n_splits rows of head_dim float32 for each row of out; statistics,
    two of them. parameters: scale, softcap and window.
    """
    out, q, k, v = rows
    scale, softcap, *_ = parameters
    n_batches, n_queries, n_heads, head_dim = q.sizes
    _, n_keys, n_kv_heads, _ = k.sizes
    n_tile_rows = n_queries * (n_heads // n_kv_heads)
    # 32 rows share what a program reads of k and v, if their results fit its registers.
    block_m = 32 if n_tile_rows > 16 and head_dim <= 128 else 16
    padded_head_dim = max(16, triton.next_power_of_2(head_dim))
    n_tiles = n_batches * n_kv_heads * triton.cdiv(n_tile_rows, block_m)
    # Two tiles of k and v are in shared memory, of 64 KB each. Where programs follow
    # each other, two share a multiprocessor, with three tiles of 32 KB each: one reads
    # keys while the other begins or ends. That is slower where keys are split, and
    # where multiprocessors are as many: some would get two programs, others none.
    # Four warps are faster than eight where keys are in one part, and slower elsewhere.
    is_large = _has_large_shared_memory(current_device().arch)
    in_pairs = n_splits == 1 and n_tiles > current_device().n_sms
    is_half = in_pairs or not is_large
    block_n = min(256, 16384 // padded_head_dim)
    attention_split_kernel[(n_tiles * n_splits,)](
        *(out.data, lse, *workspace, q.data, k.data, v.data),
        *(n_heads, n_kv_heads, n_queries, n_keys, head_dim, *out.strides),
        *(*q.strides, *k.strides, *v.strides, *parameters, n_splits),
        BLOCK_M=block_m,
        BLOCK_N=block_n // 2 if is_half else block_n,
        HEAD_DIM=padded_head_dim,
        IS_PLAIN=call.is_plain,
        DIVISIBILITY=divisibility,
        num_stages=4 if in_pairs and is_large else 3,
        num_warps=4 if n_splits == 1 or is_half else 8,
        enable_fp_fusion=True,
        launch_pdl=current_device().has_dependent_launches,
    )
    if n_splits == 1:
        return
    # Of many parts a program reads many at a time.
    block_n, parts_at_once = (16, 32) if n_splits > 8 else (64, 8)
    n_rows = n_batches * n_heads * n_queries
    attention_combine_kernel[(n_rows * triton.cdiv(head_dim, block_n),)](
        *(out.data, lse, *workspace, n_rows, n_heads, n_queries, head_dim),
        *(*out.strides, scale, softcap, n_splits),
        BLOCK_N=block_n,
        PARTS=parts_at_once,
        IS_PLAIN=call.is_plain,
        num_warps=1,
        enable_fp_fusion=True,
        launch_pdl=current_device().has_dependent_launches,
    )


def _has_large_shared_memory(arch):
    """Whether blocks may have 163 KB of it or more, where others may have 99."""
    return arch in (80, 87) or 90 <= arch < 120
