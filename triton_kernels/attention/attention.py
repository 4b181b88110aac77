"""Attention, the mean of values weighted by softmax of scores, and its backward.

  attention:          out[i, :] = sum over j of p[i, j] v[j, :],
                      p[i, j] = exp(s[i, j] - lse[i]),
                      lse[i] = log(sum over j of exp(s[i, j])),
                      s[i, j] = scale * (q[i, :] . k[j, :]),
                      over the keys j that query i sees
  attention_backward: grad_v[j, :] = sum over i of p[i, j] grad[i, :],
                      grad_q[i, :] = scale * sum over j of g[i, j] k[j, :],
                      grad_k[j, :] = scale * sum over i of g[i, j] q[i, :],
                      g[i, j] = p[i, j] (grad[i, :] . v[j, :] - delta[i]),
                      delta[i] = grad[i, :] . out[i, :] - grad_lse[i]

Layout   q, out: (n_batches, n_queries, n_heads, head_dim); k, v: (n_batches, n_keys,
         n_kv_heads, head_dim), each with head_dim contiguous and any other strides.
         Query head h reads head h / (n_heads / n_kv_heads) of k and v. lse:
         (n_batches, n_heads, n_queries) of float32. Packed sequences, of any lengths,
         follow each other: n_queries and n_keys are those of all together, and
         n_batches is 1.
Traffic  the first rungs write matrices of all scores to memory, and read them again. In
         the others scores stay in registers, and k and v are read once for each tile of
         queries that sees them, mostly from the L2. The backward computes them twice,
         for programs that own keys and for programs that own queries. On Hopper it does
         so only where rows are long: else programs of keys add up grad_q in memory.
         Where queries are few, programs share the keys.
Limits   scores and sums in float32, the result rounded once; tensor cores take
         exp(s[i, j] - max) rounded to the dtype. A query that sees no key has 0 as its
         result, and an lse of -inf. inf or NaN in k never reaches a query that does not
         see it; in v it can but for the first rung, if others of its tile see it,
         and in the backward so it can in any input.
Mirror   csrc/attention/attention.cu
Source   Vaswani et al. 2017, arXiv:1706.03762; Milakov & Gimelshein 2018,
         arXiv:1805.02867 (softmax in one pass); Dao et al. 2022, arXiv:2205.14135; Shah
         et al. 2024, arXiv:2407.08608 (warpgroups that take turns)
"""

import math

import triton

from triton_kernels.attention.backward import attention_backward
from triton_kernels.attention.first import (
    attention_scores_first_kernel,
    attention_softmax_first_kernel,
    attention_values_first_kernel,
)
from triton_kernels.attention.head_maps import HeadRows
from triton_kernels.attention.regimes import MOST, TINY, AttentionRung, Call
from triton_kernels.attention.sequences import count_tiles
from triton_kernels.attention.split_launches import launch_split
from triton_kernels.attention.tables import (
    FIRST_TILE,
    TENSOR_CORES_TILES,
    TILED_TILES,
    choose,
    choose_rung,
)
from triton_kernels.attention.tensor_cores import attention_tensor_cores_kernel
from triton_kernels.attention.tiled import attention_tiled_kernel
from triton_kernels.attention.twin_tables import BOX_SIZE, launch_twin
from triton_kernels.common.table import FIRST

__all__ = ["attention", "attention_backward"]


def attention(
    out,
    lse,
    n_taken,
    q,
    k,
    v,
    n_batches,
    n_heads,
    n_kv_heads,
    n_queries,
    n_keys,
    head_dim,
    *strides,
    scale,
    softcap,
    window_left,
    window_right,
    n_splits,
    n_sequences,
    q_offsets,
    k_offsets,
    scores,
    parts,
    statistics,
    rung,
):
    """Launches the kernel for a call on the current device and stream.

    `scores` are for the first rung: n_batches * n_heads * n_queries * n_keys of them;
    None for others. n_taken: an int32, in which programs on Hopper count the tiles of
    queries that they have taken. parts, statistics: for a call of few queries of 16
    bits, whose keys are split among n_splits programs; else n_splits is 0. q_offsets,
    k_offsets: where n_sequences packed sequences begin, and the last one ends; else
    None.
    """
    rows = tuple(
        HeadRows(x, (n_batches, n_rows, heads, head_dim), strides[i : i + 3])
        for x, n_rows, heads, i in (
            (out, n_queries, n_heads, 0),
            (q, n_queries, n_heads, 3),
            (k, n_keys, n_kv_heads, 6),
            (v, n_keys, n_kv_heads, 9),
        )
    )
    # What divides all that decides how wide rows can be read, or written.
    divisibility = math.gcd(head_dim, *strides, 16)
    call = Call(
        *(out.dtype, n_queries, head_dim),
        is_plain=scale >= TINY and softcap == 0.0,
        counts_in_int=n_queries + n_keys <= MOST
        and n_batches * n_heads * triton.cdiv(n_queries, BOX_SIZE) <= MOST,
        has_tensor_maps=all(each.have_tensor_map() for each in rows),
        has_vectors=divisibility * out.element_size() >= 8,
        is_packed=q_offsets is not None,
    )
    chosen = choose_rung(call, rung)
    sizes = (n_heads, n_kv_heads, n_queries, n_keys, head_dim)
    window = (window_left, window_right)
    if chosen == AttentionRung.FIRST:
        _launch_first(
            (out, lse, scores, q, k, v),
            n_batches,
            sizes,
            strides,
            scale,
            softcap,
            window,
        )
        return
    if (
        rung == AttentionRung.CHOSEN
        and n_splits
        and chosen >= AttentionRung.TENSOR_CORES
    ):
        launch_split(
            *(call, rows, lse, (parts, statistics), divisibility),
            *((scale, softcap, *window), n_splits),
        )
        return
    if chosen == AttentionRung.TWIN:
        launch_twin(call, rows, lse, n_taken, scale, window)
        return
    is_tiled = chosen == AttentionRung.TILED
    kernel = attention_tiled_kernel if is_tiled else attention_tensor_cores_kernel
    tile = choose(TILED_TILES if is_tiled else TENSOR_CORES_TILES, call)
    n_tiles = count_tiles(n_batches, n_queries, n_sequences, q_offsets, tile.block_m)
    kernel[(n_tiles * n_heads,)](
        *(out, lse, q, k, v, *sizes, *strides),
        *(scale, softcap, *window, n_sequences, q_offsets, k_offsets),
        **tile.constants(call),
        DIVISIBILITY=divisibility,
    )


def _launch_first(tensors, n_batches, sizes, strides, scale, softcap, window):
    """The launches of the first rung."""
    out, lse, scores, q, k, v = tensors
    n_heads, _, n_queries, n_keys, head_dim = sizes
    out_strides, q_strides, k_strides, v_strides = (
        strides[start : start + 3] for start in range(0, 12, 3)
    )

    def grid(n_cols):
        n_row_tiles = triton.cdiv(n_queries, FIRST_TILE["BLOCK_M"])
        n_col_tiles = triton.cdiv(n_cols, FIRST_TILE["BLOCK_N"])
        return (n_batches * n_heads * n_row_tiles * n_col_tiles,)

    if n_keys > 0:
        attention_scores_first_kernel[grid(n_keys)](
            *(scores, q, k, *sizes, *q_strides, *k_strides),
            *(scale, softcap, *window),
            **FIRST_TILE,
        )
    attention_softmax_first_kernel[(n_batches * n_heads * n_queries,)](
        scores, lse, n_keys, **FIRST
    )
    attention_values_first_kernel[grid(head_dim)](
        *(out, scores, v, *sizes, *out_strides, *v_strides, *window), **FIRST_TILE
    )
