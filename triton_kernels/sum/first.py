"""The first rung: a program owns an output element, and adds up what makes it."""

import triton
import triton.language as tl


@triton.jit
def sum_first_kernel(
    out_ptr,  # (n_outer, n_inner)
    x_ptr,  # (n_outer, n_reduced, n_inner)
    n_reduced,
    n_inner,
    x_stride_outer,
    x_stride_reduced,
    x_stride_inner,
    BLOCK_N: tl.constexpr,
):
    # -- tile: a program owns an output element
    element = tl.program_id(0).to(tl.int64)
    outer, inner = element // n_inner, element % n_inner
    x_ptr += outer * x_stride_outer + inner * x_stride_inner

    # -- accumulate: a lane adds every BLOCK_N-th element
    sums = tl.zeros([BLOCK_N], tl.float32)
    lanes = tl.arange(0, BLOCK_N).to(tl.int64)
    for start in range(0, tl.cast(n_reduced, tl.int64), BLOCK_N):
        offsets = (start + lanes) * x_stride_reduced
        x = tl.load(x_ptr + offsets, mask=start + lanes < n_reduced, other=0.0)
        sums += x.to(tl.float32)

    # -- reduce: the sums of the lanes
    sum = tl.sum(sums, axis=0)

    # -- store: rounded once
    tl.store(out_ptr + element, sum.to(out_ptr.dtype.element_ty))
