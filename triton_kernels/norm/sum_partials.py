"""The last launch of a backward: adds what programs have left, in a fixed order."""

import triton
import triton.language as tl


@triton.jit
def norm_sum_partials_kernel(
    grad_weight_ptr,  # (n_cols)
    grad_bias_ptr,  # (n_cols), or None
    partials_ptr,  # (1 or 2, n_partials, n_cols)
    n_partials,
    n_cols,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # -- tile: a program owns BLOCK_N columns of one of the gradients
    cols = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    out_ptr = grad_weight_ptr
    if grad_bias_ptr is not None:  # noqa: SIM102 (known when it is compiled)
        if tl.program_id(1) == 1:
            out_ptr = grad_bias_ptr
    partials_ptr += tl.program_id(1).to(tl.int64) * n_partials * n_cols

    # -- accumulate: each element of a tile has a sum of its own
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    partials = tl.arange(0, BLOCK_M).to(tl.int64)[:, None]
    for start in range(0, n_partials, BLOCK_M):
        mask = (start + partials < n_partials) & (cols < n_cols)
        offsets = (start + partials) * n_cols + cols
        sums += tl.load(partials_ptr + offsets, mask=mask, other=0.0)

    # -- reduce: the sums of a column
    sum = tl.sum(sums, axis=0, keep_dims=True)

    # -- store: rounded once
    tl.store(out_ptr + cols, sum.to(out_ptr.dtype.element_ty), mask=cols < n_cols)
