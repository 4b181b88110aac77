"""A product of matrices of 8-bit floats, with scales.

  scaled_matmul: out[i, j] = scale_a[i] scale_b[j] (sum over k of a[i, k] b[k, j])

Layout   out: contiguous. a: rows contiguous, b: columns contiguous, both with a
         multiple of 16 bytes between them. Scales: one for each row or column, of any
         stride, or one number, with a stride of 0.
Traffic  an element of a or b that a program has loaded serves all columns or rows of
         its tile. Large products are bound by the tensor cores, those of few rows by b.
Limits   tensor cores add up products of 8 bits with 13 bits of fraction: 128 at a time,
         and such sums are added in float32. Without them all is added in float32.
Mirror   csrc/scaled_matmul/scaled_matmul.cu differs in scaled_matmul_kernel, because
         Triton gives all warps of a program the same work, and decides itself when
         they wait
Source   matmul's twin, and that for tf32x3, which adds steps likewise; DeepSeek-AI
         2024, arXiv:2412.19437, section 3.3.2
"""

import torch
import triton

from triton_kernels.common.device import current_device
from triton_kernels.common.table import FIRST, CannotServeError, Rung
from triton_kernels.common.tensor_map import describe
from triton_kernels.common.vec import VEC_BYTES
from triton_kernels.scaled_matmul.first import scaled_matmul_first_kernel
from triton_kernels.scaled_matmul.twin import scaled_matmul_kernel

MOST = 2**31 - 1  # what is counted in 32 bits

# A step takes a row of 128 bytes of each tile in shared memory. Two programs share a
# multiprocessor: one adds up or stores while the tensor cores work for the other. With
# 256 rows and 8 warps, which all wait at a time, large products took a fifth longer on
# an H200.
BLOCK_M, BLOCK_N, BLOCK_K = 128, 128, 128
NUM_STAGES = 3  # steps whose a and b are in shared memory at a time
NUM_WARPS = 4
PROGRAMS_PER_SM = 2


def is_aligned(x, stride):
    """Whether TMA can copy it: each row begins at a multiple of 16 bytes."""
    stride_bytes = stride * x.element_size()
    return x.data_ptr() % VEC_BYTES == 0 and stride_bytes % VEC_BYTES == 0


def launch_twin(out, a, b, scales, M, N, K, strides):
    """Launches the twin, with as many programs as run at a time."""
    a_stride_row, b_stride_col, *scale_strides = strides
    half_m = BLOCK_M // 2
    n_tiles = triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N)
    n_programs = PROGRAMS_PER_SM * current_device().n_sms
    out_has_map = is_aligned(out, N)
    n_stores = out.element_size() // 2  # each of as many bytes
    n_stores *= 1 if out_has_map else 2  # addresses of elements take registers
    if out_has_map:
        out_block = (1, half_m, BLOCK_N // n_stores)
        out_map = describe(out, (1, M, N), (M * N, N, 1), out_block)
    a_map = describe(
        *(a, (1, M, K), (M * a_stride_row, a_stride_row, 1), (1, half_m, BLOCK_K))
    )
    b_map = describe(
        *(b, (1, N, K), (N * b_stride_col, b_stride_col, 1), (1, BLOCK_N, BLOCK_K))
    )
    scaled_matmul_kernel[(min(n_tiles, n_programs),)](
        *(out_map if out_has_map else out, a_map, b_map, *scales, M, N, K),
        *scale_strides,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K,
        N_STORES=n_stores,
        OUT_HAS_MAP=out_has_map,
        num_stages=NUM_STAGES,
        num_warps=NUM_WARPS,
        enable_fp_fusion=True,
    )


def scaled_matmul(
    out,
    a,
    b,
    scale_a,
    scale_b,
    M,
    N,
    K,
    a_stride_row,
    b_stride_col,
    scale_a_stride,
    scale_b_stride,
    a_is_e5m2,
    b_is_e5m2,
    rung,
):
    """Launches the rung's kernel on the current device and stream."""
    strides = a_stride_row, b_stride_col, scale_a_stride, scale_b_stride
    has_twin = (
        current_device().arch == 90
        and all(0 < size <= MOST - 256 for size in (M, N, K))
        and triton.cdiv(M, 128) * triton.cdiv(N, 128) <= MOST // 2
        and is_aligned(a, a_stride_row)
        and is_aligned(b, b_stride_col)
    )
    if has_twin and rung != Rung.FIRST:
        launch_twin(out, a, b, (scale_a, scale_b), M, N, K, strides)
        return
    if rung == Rung.TWIN:
        raise CannotServeError("scaled_matmul: the twin cannot serve such a call here")
    sizes = {**FIRST, "BLOCK_M": 32, "BLOCK_N": 32}
    scaled_matmul_first_kernel[(triton.cdiv(M, 32) * triton.cdiv(N, 32),)](
        *(out, a.view(torch.uint8), b.view(torch.uint8), scale_a, scale_b, M, N, K),
        *strides,
        A_IS_E5M2=a_is_e5m2,
        B_IS_E5M2=b_is_e5m2,
        **sizes,
    )
