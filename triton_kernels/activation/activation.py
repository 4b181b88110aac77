"""An activation of every element, by name, and its backward.

  activation:          out[i] = f(x[i])
  activation_backward: out[i] = grad[i] * f'(x[i])
  f: relu, leaky_relu (slope 0.01), gelu, gelu_tanh, silu

Layout   out: contiguous. grad, x: read as (n_elements / n_cols, n_cols) with any two
         strides.
Traffic  reads and writes every element once: the ceiling is the bandwidth of a copy,
         and of the backward that of 2 reads to 1 write.
Limits   accumulates in float32, so float16 and bfloat16 are rounded once.
Mirror   csrc/activation/activation.cu
Source   Maas et al. 2013, leaky ReLU; Hendrycks & Gimpel 2016, arXiv:1606.08415, GELU
         and SiLU
"""

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.epilogue import ACTIVATIONS, activate
from triton_kernels.common.math import (
    accurate_exp,
    fast_exp,
    gelu_erf_derivative,
    gelu_erf_fast_derivative,
    gelu_tanh_derivative,
    leaky_relu_backward,
    relu_backward,
    silu_derivative,
)
from triton_kernels.common.vec import load, load_strided, store

# 128 threads, each with two 16-byte accesses to a tensor. That is 16 elements of
# bfloat16 in a thread, where CUDA's kernel takes 8: measured, Triton's loses nothing.
BLOCK_BYTES = 4096
NUM_WARPS = 4


@triton.jit
def backward_of(grad, x, ACTIVATION: tl.constexpr, IS_FLOAT32: tl.constexpr):
    """The gradient of x from that of the result.

    With an error below what the type of the result resolves.
    """
    if ACTIVATION == "relu":
        grad = relu_backward(grad, x)
    elif ACTIVATION == "leaky_relu":
        grad = leaky_relu_backward(grad, x)
    elif ACTIVATION == "gelu":
        grad *= gelu_erf_derivative(x) if IS_FLOAT32 else gelu_erf_fast_derivative(x)
    elif ACTIVATION == "gelu_tanh":
        grad *= gelu_tanh_derivative(x)
    elif ACTIVATION == "silu":
        e = accurate_exp(-tl.abs(x)) if IS_FLOAT32 else fast_exp(-tl.abs(x))
        grad *= silu_derivative(x, e)
    return grad


@triton.jit
def activation_kernel(
    out_ptr,  # (n_elements)
    x_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
    x_stride_row,
    x_stride_col,
    BLOCK_SIZE: tl.constexpr,
    STRIDED: tl.constexpr,
    ACTIVATION: tl.constexpr,
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
    out = activate(x.to(tl.float32), ACTIVATION, out_ptr.dtype.element_ty)

    # -- store: past the end nothing is written
    out = out.to(out_ptr.dtype.element_ty)
    store(out_ptr + block_start, offsets, out, n_valid, BLOCK_SIZE)


@triton.jit
def activation_backward_kernel(
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
    ACTIVATION: tl.constexpr,
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
    IS_FLOAT32: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    out = backward_of(grad.to(tl.float32), x.to(tl.float32), ACTIVATION, IS_FLOAT32)

    # -- store: past the end nothing is written
    out = out.to(out_ptr.dtype.element_ty)
    store(out_ptr + block_start, offsets, out, n_valid, BLOCK_SIZE)


def activation(
    out: Tensor,
    x: Tensor,
    n_elements: int,
    n_cols: int,
    x_stride_row: int,
    x_stride_col: int,
    activation: int,
    rung: int,
) -> None:
    """Launches activation_kernel on the current device and stream."""
    block_size = BLOCK_BYTES // out.element_size()
    activation_kernel[(triton.cdiv(n_elements, block_size),)](
        out,
        x,
        n_elements,
        n_cols,
        x_stride_row,
        x_stride_col,
        BLOCK_SIZE=block_size,
        STRIDED=n_cols != n_elements or x_stride_col != 1,
        ACTIVATION=ACTIVATIONS[activation],
        num_warps=NUM_WARPS,
        enable_fp_fusion=True,
    )


def activation_backward(
    out: Tensor,
    grad: Tensor,
    x: Tensor,
    n_elements: int,
    n_cols: int,
    grad_stride_row: int,
    grad_stride_col: int,
    x_stride_row: int,
    x_stride_col: int,
    activation: int,
    rung: int,
) -> None:
    """Launches activation_backward_kernel on the current device and stream."""
    block_size = BLOCK_BYTES // out.element_size()
    activation_backward_kernel[(triton.cdiv(n_elements, block_size),)](
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
        ACTIVATION=ACTIVATIONS[activation],
        num_warps=NUM_WARPS,
        enable_fp_fusion=True,
    )
