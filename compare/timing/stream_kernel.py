"""Reads and writes, and nothing else: what the memory can do with a mix of them."""

import triton
import triton.language as tl


@triton.jit
def stream_kernel(
    read,
    written,
    n,
    READS: tl.constexpr,
    WRITES: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    # n int32 in each of READS and WRITES arrays that lie one behind the other.
    start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    column = tl.arange(0, BLOCK_SIZE)
    mask = column < n - start
    total = tl.full((BLOCK_SIZE,), 1, tl.int32)
    for i in tl.static_range(READS):
        total += tl.load(read + i * n.to(tl.int64) + start + column, mask=mask)
    for i in tl.static_range(WRITES):
        tl.store(written + i * n.to(tl.int64) + start + column, total, mask=mask)
    if WRITES == 0:
        # Never: what was read is not negative. But it has to be read to know that.
        tl.store(written + start + column, total, mask=mask & (total < 0))
