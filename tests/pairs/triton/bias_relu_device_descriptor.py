"""relu(x + bias), by tensor descriptors that the kernel makes (TMA on Hopper)."""

from typing import Optional

import torch
import triton
import triton.language as tl


def alloc_fn(size: int, alignment: int, stream: Optional[int]):
    return torch.empty(size, device="cuda", dtype=torch.int8)


@triton.jit
def bias_relu_kernel(x_ptr, bias_ptr, out_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    x_desc = tl.make_tensor_descriptor(x_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N])
    out_desc = tl.make_tensor_descriptor(out_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N])
    m = tl.program_id(0) * BLOCK_M
    n = tl.program_id(1) * BLOCK_N
    cols = n + tl.arange(0, BLOCK_N)
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
    value = x_desc.load([m, n]) + bias[None, :]
    out_desc.store([m, n], tl.where(value < 0, 0.0, value))


def bias_relu(x, bias):
    # A descriptor wants an aligned start and rows of whole 16 bytes.
    if x.shape[1] * x.element_size() % 16:
        raise ValueError(f"rows of {x.shape[1]} elements are no multiple of 16 bytes")
    x = x.contiguous()
    if x.data_ptr() % 16:
        x = x.clone()
    bias = bias.contiguous()
    triton.set_allocator(alloc_fn)
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.shape[0], 16), triton.cdiv(x.shape[1], 32))
    bias_relu_kernel[grid](x, bias, out, *x.shape, BLOCK_M=16, BLOCK_N=32)
    return out
