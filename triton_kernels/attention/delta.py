"""The first launch of a backward: for every row, what its scores' gradients share."""

import triton
import triton.language as tl


@triton.jit
def attention_delta_kernel(
    delta_ptr,  # (n_batches, n_heads, n_queries)
    grad_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    out_ptr,  # (n_batches, n_queries, n_heads, head_dim)
    grad_lse_ptr,  # (n_batches, n_heads, n_queries), or None
    n_rows,
    n_heads,
    n_queries,
    head_dim,
    grad_stride_batch,
    grad_stride_row,
    grad_stride_head,
    out_stride_batch,
    out_stride_row,
    out_stride_head,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Computes the sum over d of grad[i, d] out[i, d], less grad_lse[i].

    The gradient of score s[i, j] is then p[i, j] (grad[i, :] . v[j, :] - delta[i]): the
    sum over all keys that softmax's backward asks for is one over the columns of out
    instead.
    """
    # -- tile: a program owns BLOCK_M rows
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    queries, heads = rows % n_queries, rows // n_queries % n_heads
    batches = rows // n_queries // n_heads
    cols = tl.arange(0, BLOCK_K)[None, :]
    mask = (rows < n_rows)[:, None] & (cols < head_dim)
    grads = batches * grad_stride_batch + queries * grad_stride_row
    grads += heads * grad_stride_head
    outs = batches * out_stride_batch + queries * out_stride_row
    outs += heads * out_stride_head

    # -- compute: in float32
    grad = tl.load(grad_ptr + grads[:, None] + cols, mask=mask, other=0.0)
    out = tl.load(out_ptr + outs[:, None] + cols, mask=mask, other=0.0)
    delta = tl.sum(grad.to(tl.float32) * out.to(tl.float32), axis=1)
    if grad_lse_ptr is not None:
        delta -= tl.load(grad_lse_ptr + rows, mask=rows < n_rows, other=0.0)

    # -- store: in float32
    tl.store(delta_ptr + rows, delta, mask=rows < n_rows)
