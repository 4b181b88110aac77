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

from triton_kernels.common.elementwise import BLOCK_BYTES, NUM_WARPS
from triton_kernels.common.table import FIRST, Rung
from triton_kernels.common.vec import VEC_BYTES
from triton_kernels.rotary.first import rotary_first_kernel
from triton_kernels.rotary.twin import rotary_kernel

MIN_BLOCK_N = 16


def rotary(
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
    *strides,
    is_table_float32,
    interleaved,
    conjugate,
    rung,
):
    """Launches the rung's kernel, which turns by the angle or, conjugate, its negative.

    The rows of a program are as many as it has pairs for.
    """
    sizes = (n_rows, seq_len, n_heads, head_dim, n_pairs, n_positions)
    arguments = (out, x, cos, sin, offset, *sizes, *strides)
    constants = {"INTERLEAVED": interleaved, "CONJUGATE": conjugate}
    if rung == Rung.FIRST:
        n_programs = triton.cdiv(n_rows * (head_dim - n_pairs), FIRST["BLOCK_N"])
        rotary_first_kernel[(n_programs,)](*arguments, **FIRST, **constants)
        return
    widest = max(n_pairs, triton.cdiv(head_dim - 2 * n_pairs, 2), MIN_BLOCK_N)
    block_pairs = BLOCK_BYTES // (2 * out.element_size())
    block_n = min(triton.next_power_of_2(widest), block_pairs)
    block_m = block_pairs // block_n
    divisibility = math.gcd(16, head_dim, n_pairs, *strides)
    vec_size = math.gcd(divisibility, VEC_BYTES // out.element_size())
    # Interleaved pairs need registers for all loads: else the second vector of x is not
    # read before the first one has been turned. Single elements need more than these.
    whole_vectors = vec_size * out.element_size() == VEC_BYTES
    rotary_kernel[(triton.cdiv(n_rows, block_m),)](
        *arguments,
        **constants,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        PAIRS_PER_VEC=max(vec_size // 2, 1),
        DIVISIBILITY=divisibility,
        num_warps=NUM_WARPS,
        maxnreg=48 if interleaved and whole_vectors else None,
        enable_fp_fusion=True,
    )
