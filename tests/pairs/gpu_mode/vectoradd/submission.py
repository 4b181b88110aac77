#!POPCORN leaderboard vectoradd_v2
from task import input_t, output_t
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(A_ptr, B_ptr, C_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    a = tl.load(A_ptr + offsets, mask=mask)
    b = tl.load(B_ptr + offsets, mask=mask)
    tl.store(C_ptr + offsets, a + b, mask=mask)


def custom_kernel(data: input_t) -> output_t:
    A, B, output = data
    assert A.is_contiguous() and B.is_contiguous() and output.is_contiguous()
    n = output.numel()
    add_kernel[(triton.cdiv(n, 512),)](A, B, output, n, BLOCK_SIZE=512)
    return output
