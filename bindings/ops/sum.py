"""The sum over some dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bindings import check, layout
from bindings.library import call, register
from bindings.op import Argument, Gradient, Op

# Elements of x that a block adds up before it reads the next ones, and the bytes that
# it reads of each row where it adds up columns.
BLOCK_SIZE = 4096
ROW_BYTES = 512
# Columns of a block where 2-byte elements are loaded one by one; so many blocks are
# enough for a GPU, as a split takes a second launch.
SINGLES_COLS, ENOUGH_BLOCKS = 128, 384

# Blocks that share the work where there are too few outputs to fill a GPU: eight for
# each of an H200's 132 multiprocessors, and the same number on any other GPU, so that
# the result is the same on all.
TARGET_BLOCKS = 1056


def sum(
    x: Tensor,
    dim: int | Sequence[int] = 0,
    keepdim: bool = False,
    *,
    backend: str = "cuda",
) -> Tensor:
    """The sum over some dimensions; by default over the first, as Python's sum.

    Accumulated in float32 and rounded once, in the same order in every run: no bit of
    the result depends on how threads are scheduled. The sum of no elements is 0. The
    dimensions of the result lie in memory in the order that they have in x. An x whose
    reduced dimensions cannot be merged into one, and the others into two, is copied
    first.

    Args:
        x: Any shape, even 0-d; float32, float16 or bfloat16.
        dim: The dimensions to sum over, each once; negative values count from the last.
            An empty sequence means all of them, as in PyTorch.
        keepdim: Whether the summed dimensions stay, with size one.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the dtype of x.

    Raises:
        TypeError: x is not a tensor, its dtype is not supported, dim is neither an int
            nor a sequence of ints, or keepdim is not a bool.
        IndexError: x has no such dim.
        ValueError: dim names a dimension twice, or the backend is unknown.

    Source: Harris 2007, "Optimizing parallel reduction in CUDA".
    """
    check.is_tensor("sum", "x", x)
    dims = check.dimensions("sum", "dim", dim, x)
    check.is_bool("sum", "keepdim", keepdim)
    return call(OP, backend, x, dims, keepdim)


def _allocate(x: Tensor, dim: int | Sequence[int] = 0, keepdim: bool = False) -> Tensor:
    check.is_supported("sum", "x", x)
    dims = check.dimensions("sum", "dim", dim, x)
    kept = [d for d in range(x.dim()) if d not in dims]
    order = sorted(kept, key=x.stride, reverse=True)
    out = x.new_empty([x.shape[d] for d in order])
    out = out.permute([order.index(d) for d in kept])
    return _unsqueezed(out, dims) if keepdim and x.dim() else out


def _unsqueezed(x: Tensor, dims: Sequence[int]) -> Tensor:
    for d in sorted(dims):
        x = x.unsqueeze(d)
    return x


def _operands(
    out: Tensor, x: Tensor, dim: int | Sequence[int] = 0, keepdim: bool = False
) -> tuple[Argument, ...]:
    dims = check.dimensions("sum", "dim", dim, x) if x.dim() else ()
    walk = layout.reduction(out.squeeze(dims) if keepdim else out, x, dims)
    by_rows = walk.n_inner == 1 or walk.stride_reduced < walk.stride_inner
    n_splits, split_size = _splits(walk, by_rows, x.element_size())
    n_partial_sums = n_splits * out.numel() if n_splits > 1 else 0
    return (
        out,
        walk.x,
        x.new_empty(n_partial_sums, dtype=torch.float32),
        walk.n_outer,
        walk.n_reduced,
        walk.n_inner,
        walk.stride_outer,
        walk.stride_reduced,
        walk.stride_inner,
        by_rows,
        n_splits,
        split_size,
    )


def _splits(
    walk: layout.Reduction, by_rows: bool, element_size: int
) -> tuple[int, int]:
    """The number and the length of the parts to split the reduced dimension into."""
    steps = math.gcd(walk.n_inner, walk.stride_outer, walk.stride_reduced)
    are_singles = element_size == 2 and (steps % 8 != 0 or walk.stride_inner != 1)
    n_blocks = walk.n_outer * -(-walk.n_inner // SINGLES_COLS)
    if are_singles and not by_rows and n_blocks >= ENOUGH_BLOCKS:
        return 1, max(walk.n_reduced, 1)
    cols = 1 if by_rows else min(walk.n_inner, ROW_BYTES // element_size)
    n_blocks = walk.n_outer * -(-walk.n_inner // cols)
    # A part has whole tiles, and at least two, so that the second launch is worth it.
    step = BLOCK_SIZE // 2 ** math.ceil(math.log2(cols))
    n_splits = min(TARGET_BLOCKS // n_blocks, walk.n_reduced // (2 * step))
    if n_splits <= 1:
        return 1, max(walk.n_reduced, 1)
    split_size = -(-walk.n_reduced // (n_splits * step)) * step
    return -(-walk.n_reduced // split_size), split_size


def _reference(
    x: Tensor, dim: int | Sequence[int] = 0, keepdim: bool = False
) -> Tensor:
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    return torch.sum(x, dims, keepdim)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, dim, keepdim = inputs
    ctx.shape = x.shape
    ctx.removed = () if keepdim else check.dimensions("sum", "dim", dim, x)


def _gradient(run: Any, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    # Every element of x counts once, so a view is enough.
    if ctx.shape:
        grad = _unsqueezed(grad, ctx.removed)
    return grad.expand(ctx.shape), None, None


OP = register(
    Op(
        name="sum",
        schema="(Tensor x, int[1] dim=0, bool keepdim=False) -> Tensor",
        allocate=_allocate,
        operands=_operands,
        reference=_reference,
        gradient=Gradient(_save, _gradient),
    )
)
