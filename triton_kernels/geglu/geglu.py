"""A linear unit gated by GELU, exact or by its tanh approximation, and its backward.

  geglu:          out[i] = value[i] * gelu(gate[i])
  geglu_backward: value_grad[i] = grad[i] * gelu(gate[i])
                  gate_grad[i] = grad[i] * value[i] * gelu'(gate[i])

Layout   out: contiguous. value_grad, gate_grad: rows of n_cols elements, out_stride_row
         apart. grad, value, gate: read as (n_elements / n_cols, n_cols) with any two
         strides. The halves of one tensor are two matrices like any others.
Traffic  reads 2 and writes 1 element each, once: the ceiling is memory bandwidth at 2
         reads to 1 write, and of the backward at 3 reads to 2 writes. It computes the
         gate again, which costs less than reading it would.
Limits   accumulates in float32, so float16 and bfloat16 are rounded once.
Mirror   csrc/geglu/geglu.cu
Source   Shazeer 2020, arXiv:2002.05202
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
from triton_kernels.common.vec import (
    VEC_BYTES,
    load,
    load_rows,
    row_vec_size,
    store,
    store_rows,
)

# 128 threads, each with two 16-byte accesses to a tensor. That is 16 elements of
# bfloat16 in a thread, where CUDA's kernel takes 8: measured, Triton's add and gelu
# lose nothing.
BLOCK_BYTES = 4096
NUM_WARPS = 4


@triton.jit
def gelu(x, IS_FLOAT32: tl.constexpr, APPROXIMATE_TANH: tl.constexpr):
    """The gate. The fast form is for types that do not resolve its error."""
    if APPROXIMATE_TANH:
        result = gelu_tanh(x)
    elif IS_FLOAT32:
        result = gelu_erf(x)
    else:
        result = gelu_erf_fast(x)
    return result


@triton.jit
def gelu_derivative(x, IS_FLOAT32: tl.constexpr, APPROXIMATE_TANH: tl.constexpr):
    """Its derivative."""
    if APPROXIMATE_TANH:
        result = gelu_tanh_derivative(x)
    elif IS_FLOAT32:
        result = gelu_erf_derivative(x)
    else:
        result = gelu_erf_fast_derivative(x)
    return result


@triton.jit
def geglu_kernel(
    out_ptr,  # (n_elements)
    value_ptr,  # (n_elements / n_cols, n_cols)
    gate_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
    value_stride_row,
    value_stride_col,
    gate_stride_row,
    gate_stride_col,
    BLOCK_SIZE: tl.constexpr,
    VEC_SIZE: tl.constexpr,
    STRIDED: tl.constexpr,
    APPROXIMATE_TANH: tl.constexpr,
):
    IS_FLOAT32: tl.constexpr = out_ptr.dtype.element_ty == tl.float32

    # -- tile: a program owns BLOCK_SIZE neighbouring elements
    block_start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    n_valid = n_elements - block_start
    vectors = tl.arange(0, BLOCK_SIZE // VEC_SIZE)[:, None] * VEC_SIZE
    offsets = vectors + tl.arange(0, VEC_SIZE)[None, :]

    # -- load: past the end nothing is read
    if STRIDED:
        vectors += block_start
        value = load_rows(
            value_ptr,
            vectors,
            n_elements,
            n_cols,
            value_stride_row,
            value_stride_col,
            VEC_SIZE,
        )
        gate = load_rows(
            gate_ptr,
            vectors,
            n_elements,
            n_cols,
            gate_stride_row,
            gate_stride_col,
            VEC_SIZE,
        )
    else:
        value = load(value_ptr + block_start, offsets, n_valid, BLOCK_SIZE)
        gate = load(gate_ptr + block_start, offsets, n_valid, BLOCK_SIZE)

    # -- compute: in float32, rounded once
    out = value.to(tl.float32) * gelu(gate.to(tl.float32), IS_FLOAT32, APPROXIMATE_TANH)

    # -- store: past the end nothing is written
    out = out.to(out_ptr.dtype.element_ty)
    store(out_ptr + block_start, offsets, out, n_valid, BLOCK_SIZE)


@triton.jit
def geglu_backward_kernel(
    value_grad_ptr,  # (n_elements / n_cols, n_cols)
    gate_grad_ptr,  # (n_elements / n_cols, n_cols)
    grad_ptr,  # (n_elements / n_cols, n_cols)
    value_ptr,  # (n_elements / n_cols, n_cols)
    gate_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
    out_stride_row,
    grad_stride_row,
    grad_stride_col,
    value_stride_row,
    value_stride_col,
    gate_stride_row,
    gate_stride_col,
    BLOCK_SIZE: tl.constexpr,
    VEC_SIZE: tl.constexpr,
    STRIDED: tl.constexpr,
    APPROXIMATE_TANH: tl.constexpr,
):
    IS_FLOAT32: tl.constexpr = value_grad_ptr.dtype.element_ty == tl.float32

    # -- tile: a program owns BLOCK_SIZE neighbouring elements
    block_start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    n_valid = n_elements - block_start
    vectors = tl.arange(0, BLOCK_SIZE // VEC_SIZE)[:, None] * VEC_SIZE
    offsets = vectors + tl.arange(0, VEC_SIZE)[None, :]

    # -- load: past the end nothing is read
    if STRIDED:
        vectors += block_start
        grad = load_rows(
            grad_ptr,
            vectors,
            n_elements,
            n_cols,
            grad_stride_row,
            grad_stride_col,
            VEC_SIZE,
        )
        value = load_rows(
            value_ptr,
            vectors,
            n_elements,
            n_cols,
            value_stride_row,
            value_stride_col,
            VEC_SIZE,
        )
        gate = load_rows(
            gate_ptr,
            vectors,
            n_elements,
            n_cols,
            gate_stride_row,
            gate_stride_col,
            VEC_SIZE,
        )
    else:
        grad = load(grad_ptr + block_start, offsets, n_valid, BLOCK_SIZE)
        value = load(value_ptr + block_start, offsets, n_valid, BLOCK_SIZE)
        gate = load(gate_ptr + block_start, offsets, n_valid, BLOCK_SIZE)

    # -- compute: in float32, rounded once. The derivative comes first: where it is 0,
    # grad * value may be inf
    x = gate.to(tl.float32)
    grad = grad.to(tl.float32)
    gate_grad = grad * gelu_derivative(x, IS_FLOAT32, APPROXIMATE_TANH)
    gate_grad *= value.to(tl.float32)
    value_grad = grad * gelu(x, IS_FLOAT32, APPROXIMATE_TANH)

    # -- store: past the end nothing is written
    value_grad = value_grad.to(value_grad_ptr.dtype.element_ty)
    gate_grad = gate_grad.to(value_grad_ptr.dtype.element_ty)
    if STRIDED:
        store_rows(
            value_grad_ptr,
            vectors,
            value_grad,
            n_elements,
            n_cols,
            out_stride_row,
            VEC_SIZE,
        )
        store_rows(
            gate_grad_ptr,
            vectors,
            gate_grad,
            n_elements,
            n_cols,
            out_stride_row,
            VEC_SIZE,
        )
    else:
        store(value_grad_ptr + block_start, offsets, value_grad, n_valid, BLOCK_SIZE)
        store(gate_grad_ptr + block_start, offsets, gate_grad, n_valid, BLOCK_SIZE)


def geglu(
    out: Tensor,
    value: Tensor,
    gate: Tensor,
    n_elements: int,
    n_cols: int,
    value_stride_row: int,
    value_stride_col: int,
    gate_stride_row: int,
    gate_stride_col: int,
    approximate_tanh: bool,
    rung: int,
) -> None:
    """Launches geglu_kernel on the current device and stream."""
    block_size = BLOCK_BYTES // out.element_size()
    vec_size = VEC_BYTES // out.element_size()
    strides_col = (value_stride_col, gate_stride_col)
    strided = n_cols != n_elements or strides_col != (1, 1)
    if strided:
        strides_row = (value_stride_row, gate_stride_row)
        vec_size = row_vec_size(
            out.element_size(), n_cols, strides_row, max(strides_col) > 1
        )
    geglu_kernel[(triton.cdiv(n_elements, block_size),)](
        out,
        value,
        gate,
        n_elements,
        n_cols,
        value_stride_row,
        value_stride_col,
        gate_stride_row,
        gate_stride_col,
        BLOCK_SIZE=block_size,
        VEC_SIZE=vec_size,
        STRIDED=strided,
        APPROXIMATE_TANH=approximate_tanh,
        num_warps=NUM_WARPS,
        enable_fp_fusion=True,
    )


def geglu_backward(
    value_grad: Tensor,
    gate_grad: Tensor,
    grad: Tensor,
    value: Tensor,
    gate: Tensor,
    n_elements: int,
    n_cols: int,
    out_stride_row: int,
    grad_stride_row: int,
    grad_stride_col: int,
    value_stride_row: int,
    value_stride_col: int,
    gate_stride_row: int,
    gate_stride_col: int,
    approximate_tanh: bool,
    rung: int,
) -> None:
    """Launches geglu_backward_kernel on the current device and stream."""
    block_size = BLOCK_BYTES // value_grad.element_size()
    vec_size = VEC_BYTES // value_grad.element_size()
    strides_col = (grad_stride_col, value_stride_col, gate_stride_col)
    strided = n_cols != n_elements or strides_col != (1, 1, 1)
    if strided:
        strides_row = (
            out_stride_row,
            grad_stride_row,
            value_stride_row,
            gate_stride_row,
        )
        vec_size = row_vec_size(
            value_grad.element_size(), n_cols, strides_row, max(strides_col) > 1
        )
    geglu_backward_kernel[(triton.cdiv(n_elements, block_size),)](
        value_grad,
        gate_grad,
        grad,
        value,
        gate,
        n_elements,
        n_cols,
        out_stride_row,
        grad_stride_row,
        grad_stride_col,
        value_stride_row,
        value_stride_col,
        gate_stride_row,
        gate_stride_col,
        BLOCK_SIZE=block_size,
        VEC_SIZE=vec_size,
        STRIDED=strided,
        APPROXIMATE_TANH=approximate_tanh,
        num_warps=NUM_WARPS,
        enable_fp_fusion=True,
    )
