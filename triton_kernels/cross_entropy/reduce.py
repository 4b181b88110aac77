"""The second launch, where the losses are added up.

One program adds what the programs of the first one have left, in an order that is the
same in every run.
"""

import triton
import triton.language as tl

REDUCE = {"BLOCK_M": 4096, "num_warps": 16, "enable_fp_fusion": True}


@triton.jit
def cross_entropy_reduce_kernel(
    loss_ptr,  # ()
    n_counted_ptr,  # ()
    partial_ptr,  # (n_blocks, 2)
    n_blocks,
    mean,  # 0 or 1: Triton 3.6's interpreter knows no bool
    BLOCK_M: tl.constexpr,
):
    # -- tile: the program owns everything
    offsets = tl.arange(0, 2 * BLOCK_M)
    totals = tl.zeros([2 * BLOCK_M], tl.float32)

    # -- accumulate: losses, and the rows that count
    n_values = 2 * tl.cast(n_blocks, tl.int64)
    for start in range(0, n_values, 2 * BLOCK_M):
        mask = offsets < n_values - start
        totals += tl.load(partial_ptr + start + offsets, mask=mask, other=0.0)

    # -- reduce: what the lanes have
    losses, counts = tl.split(tl.reshape(totals, [BLOCK_M, 2]))
    loss, n_counted = tl.sum(losses), tl.sum(counts)

    # -- store: rounded once; the mean of no rows is 0 / 0
    loss = tl.where(mean != 0, loss / n_counted, loss)
    tl.store(loss_ptr, loss.to(loss_ptr.dtype.element_ty))
    tl.store(n_counted_ptr, n_counted)
