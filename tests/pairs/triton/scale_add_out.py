import torch
import triton
import triton.language as tl


@triton.jit
def scale_add_kernel(out_ptr, x_ptr, y_ptr, alpha, n, BLOCK: tl.constexpr = 256):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = i < n
    x = tl.load(x_ptr + i, keep)
    y = tl.load(y_ptr + i, keep)
    tl.store(out_ptr + i, alpha * x + y, keep)


def scale_add(x, y, alpha, *, out=None):
    """alpha * x + y, into `out` if there is one."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    x, y = x.contiguous(), y.contiguous()
    n = out.numel()
    scale_add_kernel[triton.cdiv(n, 256),](out, x, y, alpha, n)
    return out


def add_(x, y):
    """x += y, in place."""
    return scale_add(y, x, 1.0, out=x)
