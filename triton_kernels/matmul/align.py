"""Copies of operands whose rows begin anywhere, with rows that begin at 16 bytes.

TMA asks for such rows. A copy costs a launch, and two accesses to memory for each
element. Without it, each element is a load of its own in every program that needs it.
"""

import triton
import triton.language as tl

ROWS, COLS = 8, 256  # that a program copies


def stride_of(n_cols: int) -> int:
    """How many elements lie between rows of a copy: 16 bytes, or a line of the L2."""
    step = 8 if n_cols < 256 else 64
    return -(-n_cols // step) * step


@triton.jit(do_not_specialize=["n_rows", "stride_row", "stride_batch"])
def matmul_align_kernel(
    copy_ptr,  # (n_batches, n_rows, n_cols), its rows copy_stride_row apart
    x_ptr,  # (n_batches, n_rows, n_cols)
    n_rows,
    n_cols,
    stride_batch,
    stride_row,
    copy_stride_row,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Rows are those in memory, whatever they are in the product."""
    # -- tile: BLOCK_M rows, BLOCK_N columns
    n_row_blocks, n_col_blocks = tl.cdiv(n_rows, BLOCK_M), tl.cdiv(n_cols, BLOCK_N)
    index = tl.program_id(0).to(tl.int64)
    batch = index // (n_row_blocks * n_col_blocks)
    index = index % (n_row_blocks * n_col_blocks)
    rows = index // n_col_blocks * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = index % n_col_blocks * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]

    # -- store: neighbouring elements, by neighbouring threads
    is_inside = (rows < n_rows) & (cols < n_cols)
    x_ptr += batch * stride_batch + rows * stride_row + cols
    copy_ptr += (batch * n_rows + rows) * copy_stride_row + cols
    tl.store(copy_ptr, tl.load(x_ptr, mask=is_inside), mask=is_inside)
