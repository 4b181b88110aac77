"""The Gaussian error linear unit, exact or by its tanh approximation, and its backward.

  gelu:          out[i] = x[i] * Phi(x[i])
  gelu_backward: out[i] = grad[i] * (Phi(x[i]) + x[i] * phi(x[i]))
  Phi and phi: distribution function and density of the standard normal

Layout   out: contiguous. grad, x: read as (n_elements / n_cols, n_cols) with any two
         strides.
Traffic  reads and writes every element once: the ceiling is the bandwidth of a copy,
         and of the backward that of 2 reads to 1 write.
Limits   accumulates in float32, so float16 and bfloat16 are rounded once.
Mirror   csrc/gelu/gelu.cu
Source   Hendrycks & Gimpel 2016, arXiv:1606.08415
"""

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.math import (
    gelu_erf,
    gelu_erf_derivative,
    gelu_erf_fast,
    gelu_erf_fast_derivative,
    gelu_tanh,
    gelu_tanh_derivative,
)
from triton_kernels.common.vec import load, load_strided, store

# 128 threads, each with two 16-byte accesses to a tensor. That is 16 elements of
# bfloat16 in a thread, where CUDA's kernel takes 8: measured, Triton's loses nothing.
BLOCK_BYTES = 4096
NUM_WARPS = 4


@triton.jit
def gelu_kernel(
    out_ptr,  # (n_elements)
    x_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
    x_stride_row,
    x_stride_col,
    BLOCK_SIZE: tl.constexpr,
    STRIDED: tl.constexpr,
    APPROXIMATE_TANH: tl.constexpr,
):
    # -- tile: a program owns BLOCK_SIZE neighbouring elements
    block_start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    n_valid = n_elements - block_start
    offsets = tl.arange(0, BLOCK_SIZE)

    # -- load: past the end nothing is read
    if STRIDED:
        elements = block_start + offsets
        x = load_strided(
            x_ptr, elements, n_elements, n_cols, x_stride_row, x_stride_col
        )
    else:
        x = load(x_ptr + block_start, offsets, n_valid, BLOCK_SIZE)

    # -- compute: in float32, rounded once
    x = x.to(tl.float32)
    if APPROXIMATE_TANH:
        out = gelu_tanh(x)
    elif out_ptr.dtype.element_ty == tl.float32:
        out = gelu_erf(x)
    else:
        out = gelu_erf_fast(x)

    # -- store: past the end nothing is written
    out = out.to(out_ptr.dtype.element_ty)
    store(out_ptr + block_start, offsets, out, n_valid, BLOCK_SIZE)


@triton.jit
def gelu_backward_kernel(
    out_ptr,  # (n_elements)
    grad_ptr,  # (n_elements / n_cols, n_cols)
    x_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
    grad_stride_row,
    grad_stride_col,
    x_stride_row,
    x_stride_col,
    BLOCK_SIZE: tl.constexpr,
    STRIDED: tl.constexpr,
    APPROXIMATE_TANH: tl.constexpr,
):
    # -- tile: a program owns BLOCK_SIZE neighbouring elements
    block_start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    n_valid = n_elements - block_start
    offsets = tl.arange(0, BLOCK_SIZE)

    # -- load: past the end nothing is read
    if STRIDED:
        elements = block_start + offsets
        grad = load_strided(
            grad_ptr, elements, n_elements, n_cols, grad_stride_row, grad_stride_col
        )
        x = load_strided(
            x_ptr, elements, n_elements, n_cols, x_stride_row, x_stride_col
        )
    else:
        grad = load(grad_ptr + block_start, offsets, n_valid, BLOCK_SIZE)
        x = load(x_ptr + block_start, offsets, n_valid, BLOCK_SIZE)

    # -- compute: in float32, rounded once
    x = x.to(tl.float32)
    if APPROXIMATE_TANH:
        derivative = gelu_tanh_derivative(x)
    elif out_ptr.dtype.element_ty == tl.float32:
        derivative = gelu_erf_derivative(x)
    else:
        derivative = gelu_erf_fast_derivative(x)
    out = grad.to(tl.float32) * derivative

    # -- store: past the end nothing is written
    out = out.to(out_ptr.dtype.element_ty)
    store(out_ptr + block_start, offsets, out, n_valid, BLOCK_SIZE)


def gelu(
    out: Tensor,
    x: Tensor,
    n_elements: int,
    n_cols: int,
    x_stride_row: int,
    x_stride_col: int,
    approximate_tanh: bool,
    rung: int,
) -> None:
    """Launches gelu_kernel on the current device and stream."""
    block_size = BLOCK_BYTES // out.element_size()
    gelu_kernel[(triton.cdiv(n_elements, block_size),)](
        out,
        x,
        n_elements,
        n_cols,
        x_stride_row,
        x_stride_col,
        BLOCK_SIZE=block_size,
        STRIDED=n_cols != n_elements or x_stride_col != 1,
        APPROXIMATE_TANH=approximate_tanh,
        num_warps=NUM_WARPS,
        enable_fp_fusion=True,
    )


def gelu_backward(
    out: Tensor,
    grad: Tensor,
    x: Tensor,
    n_elements: int,
    n_cols: int,
    grad_stride_row: int,
    grad_stride_col: int,
    x_stride_row: int,
    x_stride_col: int,
    approximate_tanh: bool,
    rung: int,
) -> None:
    """Launches gelu_backward_kernel on the current device and stream."""
    block_size = BLOCK_BYTES // out.element_size()
    gelu_backward_kernel[(triton.cdiv(n_elements, block_size),)](
        out,
        grad,
        x,
        n_elements,
        n_cols,
        grad_stride_row,
        grad_stride_col,
        x_stride_row,
        x_stride_col,
        BLOCK_SIZE=block_size,
        STRIDED=n_cols != n_elements or grad_stride_col != 1 or x_stride_col != 1,
        APPROXIMATE_TANH=approximate_tanh,
        num_warps=NUM_WARPS,
        enable_fp_fusion=True,
    )
