"""A linear unit gated by SiLU, and its backward.

  swiglu:          out[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + exp(-x))
  swiglu_backward: gate_grad[i] = grad[i] * up[i] * silu'(gate[i])
                   up_grad[i] = grad[i] * silu(gate[i])

Layout   out: contiguous. gate_grad, up_grad: rows of n_cols elements, out_stride_row
         apart. grad, gate, up: read as (n_elements / n_cols, n_cols) with any two
         strides. The halves of one tensor are two matrices like any others.
Traffic  reads 2 and writes 1 element each, once: the ceiling is memory bandwidth at 2
         reads to 1 write, and of the backward at 3 reads to 2 writes. It computes the
         gate again, which costs less than reading it would.
Limits   accumulates in float32, so float16 and bfloat16 are rounded once.
Mirror   csrc/swiglu/swiglu.cu
Source   Shazeer 2020, arXiv:2002.05202
"""

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels.common.math import accurate_exp, fast_exp, silu, silu_derivative
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
def exp_minus_abs(x, IS_FLOAT32: tl.constexpr):
    """exp(-|x|). The fast form is for types that do not resolve its error."""
    return accurate_exp(-tl.abs(x)) if IS_FLOAT32 else fast_exp(-tl.abs(x))


@triton.jit
def swiglu_kernel(
    out_ptr,  # (n_elements)
    gate_ptr,  # (n_elements / n_cols, n_cols)
    up_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
    gate_stride_row,
    gate_stride_col,
    up_stride_row,
    up_stride_col,
    BLOCK_SIZE: tl.constexpr,
    VEC_SIZE: tl.constexpr,
    STRIDED: tl.constexpr,
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
        gate = load_rows(
            gate_ptr,
            vectors,
            n_elements,
            n_cols,
            gate_stride_row,
            gate_stride_col,
            VEC_SIZE,
        )
        up = load_rows(
            up_ptr,
            vectors,
            n_elements,
            n_cols,
            up_stride_row,
            up_stride_col,
            VEC_SIZE,
        )
    else:
        gate = load(gate_ptr + block_start, offsets, n_valid, BLOCK_SIZE)
        up = load(up_ptr + block_start, offsets, n_valid, BLOCK_SIZE)

    # -- compute: in float32, rounded once
    x = gate.to(tl.float32)
    out = silu(x, exp_minus_abs(x, IS_FLOAT32)) * up.to(tl.float32)

    # -- store: past the end nothing is written
    out = out.to(out_ptr.dtype.element_ty)
    store(out_ptr + block_start, offsets, out, n_valid, BLOCK_SIZE)


@triton.jit
def swiglu_backward_kernel(
    gate_grad_ptr,  # (n_elements / n_cols, n_cols)
    up_grad_ptr,  # (n_elements / n_cols, n_cols)
    grad_ptr,  # (n_elements / n_cols, n_cols)
    gate_ptr,  # (n_elements / n_cols, n_cols)
    up_ptr,  # (n_elements / n_cols, n_cols)
    n_elements,
    n_cols,
    out_stride_row,
    grad_stride_row,
    grad_stride_col,
    gate_stride_row,
    gate_stride_col,
    up_stride_row,
    up_stride_col,
    BLOCK_SIZE: tl.constexpr,
    VEC_SIZE: tl.constexpr,
    STRIDED: tl.constexpr,
):
    IS_FLOAT32: tl.constexpr = gate_grad_ptr.dtype.element_ty == tl.float32

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
        gate = load_rows(
            gate_ptr,
            vectors,
            n_elements,
            n_cols,
            gate_stride_row,
            gate_stride_col,
            VEC_SIZE,
        )
        up = load_rows(
            up_ptr,
            vectors,
            n_elements,
            n_cols,
            up_stride_row,
            up_stride_col,
            VEC_SIZE,
        )
    else:
        grad = load(grad_ptr + block_start, offsets, n_valid, BLOCK_SIZE)
        gate = load(gate_ptr + block_start, offsets, n_valid, BLOCK_SIZE)
        up = load(up_ptr + block_start, offsets, n_valid, BLOCK_SIZE)

    # -- compute: in float32, rounded once. The derivative comes first: where it is 0,
    # grad * up may be inf
    x = gate.to(tl.float32)
    e = exp_minus_abs(x, IS_FLOAT32)
    grad = grad.to(tl.float32)
    gate_grad = grad * silu_derivative(x, e) * up.to(tl.float32)
    up_grad = grad * silu(x, e)

    # -- store: past the end nothing is written
    gate_grad = gate_grad.to(gate_grad_ptr.dtype.element_ty)
    up_grad = up_grad.to(gate_grad_ptr.dtype.element_ty)
    if STRIDED:
        store_rows(
            gate_grad_ptr,
            vectors,
            gate_grad,
            n_elements,
            n_cols,
            out_stride_row,
            VEC_SIZE,
        )
        store_rows(
            up_grad_ptr,
            vectors,
            up_grad,
            n_elements,
            n_cols,
            out_stride_row,
            VEC_SIZE,
        )
    else:
        store(gate_grad_ptr + block_start, offsets, gate_grad, n_valid, BLOCK_SIZE)
        store(up_grad_ptr + block_start, offsets, up_grad, n_valid, BLOCK_SIZE)


def swiglu(
    out: Tensor,
    gate: Tensor,
    up: Tensor,
    n_elements: int,
    n_cols: int,
    gate_stride_row: int,
    gate_stride_col: int,
    up_stride_row: int,
    up_stride_col: int,
    rung: int,
) -> None:
    """Launches swiglu_kernel on the current device and stream."""
    block_size = BLOCK_BYTES // out.element_size()
    vec_size = VEC_BYTES // out.element_size()
    strides_col = (gate_stride_col, up_stride_col)
    strided = n_cols != n_elements or strides_col != (1, 1)
    if strided:
        strides_row = (gate_stride_row, up_stride_row)
        vec_size = row_vec_size(
            out.element_size(), n_cols, strides_row, max(strides_col) > 1
        )
    swiglu_kernel[(triton.cdiv(n_elements, block_size),)](
        out,
        gate,
        up,
        n_elements,
        n_cols,
        gate_stride_row,
        gate_stride_col,
        up_stride_row,
        up_stride_col,
        BLOCK_SIZE=block_size,
        VEC_SIZE=vec_size,
        STRIDED=strided,
        num_warps=NUM_WARPS,
        enable_fp_fusion=True,
    )


def swiglu_backward(
    gate_grad: Tensor,
    up_grad: Tensor,
    grad: Tensor,
    gate: Tensor,
    up: Tensor,
    n_elements: int,
    n_cols: int,
    out_stride_row: int,
    grad_stride_row: int,
    grad_stride_col: int,
    gate_stride_row: int,
    gate_stride_col: int,
    up_stride_row: int,
    up_stride_col: int,
    rung: int,
) -> None:
    """Launches swiglu_backward_kernel on the current device and stream."""
    block_size = BLOCK_BYTES // gate_grad.element_size()
    vec_size = VEC_BYTES // gate_grad.element_size()
    strides_col = (grad_stride_col, gate_stride_col, up_stride_col)
    strided = n_cols != n_elements or strides_col != (1, 1, 1)
    if strided:
        strides_row = (
            out_stride_row,
            grad_stride_row,
            gate_stride_row,
            up_stride_row,
        )
        vec_size = row_vec_size(
            gate_grad.element_size(), n_cols, strides_row, max(strides_col) > 1
        )
    swiglu_backward_kernel[(triton.cdiv(n_elements, block_size),)](
        gate_grad,
        up_grad,
        grad,
        gate,
        up,
        n_elements,
        n_cols,
        out_stride_row,
        grad_stride_row,
        grad_stride_col,
        gate_stride_row,
        gate_stride_col,
        up_stride_row,
        up_stride_col,
        BLOCK_SIZE=block_size,
        VEC_SIZE=vec_size,
        STRIDED=strided,
        num_warps=NUM_WARPS,
        enable_fp_fusion=True,
    )
