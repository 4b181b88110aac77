import torch
import triton
import triton.language as tl

ROWS_PER_PROGRAM = 8


@triton.jit
def partial_sum_kernel(x, workspace, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    part = tl.program_id(0)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = part * ROWS + tl.arange(0, ROWS)
    mask = (row[:, None] < rows) & (col[None, :] < cols)
    values = tl.load(x + row[:, None] * cols + col[None, :], mask=mask, other=0.0)
    tl.store(workspace + part * cols + col, tl.sum(values, axis=0), mask=col < cols)


@triton.jit
def finish_kernel(workspace, out, parts, rows, cols, BLOCK: tl.constexpr):
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = col < cols
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(parts):
        total += tl.load(workspace + part * cols + col, mask=mask, other=0.0)
    tl.store(out + col, total / rows, mask=mask)


def column_mean(x):
    x = x.contiguous()
    rows, cols = x.shape
    parts = triton.cdiv(rows, ROWS_PER_PROGRAM)
    workspace = torch.empty((parts, cols), dtype=torch.float32, device=x.device)
    out = torch.empty(cols, dtype=x.dtype, device=x.device)
    block = 64
    partial_sum_kernel[(parts, triton.cdiv(cols, block))](x, workspace, rows, cols, ROWS_PER_PROGRAM, block)
    finish_kernel[(triton.cdiv(cols, block),)](workspace, out, parts, rows, cols, BLOCK=block)
    return out
