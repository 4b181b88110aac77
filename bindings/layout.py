"""Turns tensors of any strides into the rows and columns that a kernel walks over.

A kernel sees a tensor as rows with one or two strides and columns with one. Dimensions
that all tensors of a call step through evenly are merged into one. A tensor that keeps
more dimensions than two is copied into the layout of the output first, which costs one
more read and write.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Dimension(NamedTuple):
    """A dimension and the step that each tensor takes along it, in elements."""

    size: int
    strides: tuple[int, ...]


def collapse(
    tensors: tuple[Tensor, ...], without: int | None = None
) -> list[Dimension]:
    """Merges the dimensions of the first tensor; the outermost in memory comes first.

    Args:
        tensors: Tensors of the same shape, after broadcasting.
        without: A dimension to leave out.
    """
    first = tensors[0]
    dims = [d for d in range(first.dim()) if d != without and first.shape[d] != 1]
    dims.sort(key=first.stride, reverse=True)
    merged: list[Dimension] = []
    for d in dims:
        inner = Dimension(first.shape[d], tuple(t.stride(d) for t in tensors))
        if merged:
            outer = merged[-1]
            steps = tuple(stride * inner.size for stride in inner.strides)
            if outer.strides == steps:
                merged[-1] = Dimension(outer.size * inner.size, inner.strides)
                continue
        merged.append(inner)
    return merged


def like(out: Tensor, x: Tensor) -> Tensor:
    """A copy of x in the layout of out, of which only shape and strides are used."""
    return torch.empty_like(out, dtype=x.dtype, device=x.device).copy_(x)


class Elementwise(NamedTuple):
    """The inputs of an elementwise kernel, and how it walks over them.

    Attributes:
        inputs: The inputs, some of them perhaps copied.
        n_elements: Elements of the output.
        n_cols: Columns of a row; all elements where one row is enough.
        strides: stride_row and stride_col of each input in turn.
        out_stride_row: Stride between the output's rows; its columns are contiguous.
    """

    inputs: tuple[Tensor, ...]
    n_elements: int
    n_cols: int
    strides: tuple[int, ...]
    out_stride_row: int


def elementwise(out: Tensor, *inputs: Tensor) -> Elementwise:
    """The rows and columns of inputs that broadcast to the shape of an output.

    The output is dense, or a range of a dense tensor along one dimension.
    """
    n_elements = out.numel()
    if _is_dense(out) and all(
        x.shape == out.shape and x.stride() == out.stride() for x in inputs
    ):
        return Elementwise(inputs, n_elements, n_elements, (0, 1) * len(inputs), 0)
    expanded = tuple(x.expand(out.shape) for x in inputs)
    dims = collapse((out, *expanded))
    if len(dims) > 2:
        inputs = tuple(
            x if x.stride() == out.stride() else like(out, x) for x in expanded
        )
        dims = collapse((out, *inputs))
    none = (0,) * (1 + len(inputs))
    if dims and dims[-1].strides[0] != 1:  # one entry of each row of the dense tensor
        dims.append(Dimension(1, none))
    row = dims[0] if len(dims) == 2 else Dimension(1, none)
    col = dims[-1] if dims else Dimension(1, (1,) * (1 + len(inputs)))
    pairs = zip(row.strides[1:], col.strides[1:], strict=True)
    return Elementwise(
        inputs,
        n_elements,
        col.size,
        tuple(stride for pair in pairs for stride in pair),
        row.strides[0],
    )


def _is_dense(x: Tensor) -> bool:
    """Whether a tensor whose entries do not overlap has no gaps between them."""
    steps = zip(x.shape, x.stride(), strict=True)
    return x.numel() == 1 + sum((size - 1) * stride for size, stride in steps)


class Rows(NamedTuple):
    """The inputs of a kernel that works on rows, and how it walks over them.

    Attributes:
        inputs: The inputs, some of them perhaps copied.
        n_rows: Rows of the output, which lie one behind the other.
        n_cols: Columns of a row, which are contiguous.
        rows_per_batch: Rows of a batch, after which inputs step by stride_batch.
        strides: stride_batch and stride_row of each input in turn, in elements: from
            batch to batch, and from row to row within a batch.
    """

    inputs: tuple[Tensor, ...]
    n_rows: int
    n_cols: int
    rows_per_batch: int
    strides: tuple[int, ...]


def rows(out: Tensor, *inputs: Tensor, dim: int) -> Rows:
    """The rows along a dimension that is innermost in a dense output.

    An input in which the dimension is not contiguous is copied.
    """
    n_cols = out.shape[dim] if out.dim() else 1
    inputs = tuple(x if is_innermost(x, dim) else like(out, x) for x in inputs)
    dims = collapse((out, *inputs), without=dim)
    if len(dims) > 2:
        inputs = tuple(
            x if x.stride() == out.stride() else like(out, x) for x in inputs
        )
        dims = collapse((out, *inputs), without=dim)
    batch = dims[0] if len(dims) == 2 else Dimension(1, (0,) * (1 + len(inputs)))
    row = dims[-1] if dims else Dimension(1, (n_cols,) * (1 + len(inputs)))
    pairs = zip(batch.strides[1:], row.strides[1:], strict=True)
    return Rows(
        inputs,
        batch.size * row.size,
        n_cols,
        row.size,
        tuple(stride for pair in pairs for stride in pair),
    )


def is_innermost(x: Tensor, dim: int) -> bool:
    """Whether the entries along a dimension are contiguous in memory."""
    return x.dim() == 0 or x.shape[dim] <= 1 or x.stride(dim) == 1


def empty_rows_like(x: Tensor, dim: int) -> Tensor:
    """A dense tensor of the shape of x, in its memory format if dim is innermost."""
    out = torch.empty_like(x)
    if is_innermost(x, dim) and is_innermost(out, dim):
        return out
    return x.new_empty(x.movedim(dim, -1).shape).movedim(-1, dim)


class Reduction(NamedTuple):
    """The input of a kernel that reduces one dimension, and how it walks over it.

    The input is seen as (outer, reduced, inner), the output as (outer, inner).

    Attributes:
        x: The input, perhaps copied.
        n_outer: Size of the outer dimension.
        n_reduced: Size of the reduced dimension.
        n_inner: Size of the inner dimension.
        stride_outer: Stride of x along the outer dimension, in elements.
        stride_reduced: Stride of x along the reduced dimension, in elements.
        stride_inner: Stride of x along the inner dimension, in elements.
    """

    x: Tensor
    n_outer: int
    n_reduced: int
    n_inner: int
    stride_outer: int
    stride_reduced: int
    stride_inner: int


def reduction(out: Tensor, x: Tensor, dims: tuple[int, ...]) -> Reduction:
    """Merges some dimensions of x into one to reduce, and the others into two to keep.

    Args:
        out: The output: dense, with the kept dimensions of x in their order.
        x: The input, with any strides.
        dims: The dimensions to reduce, counted from the front.
    """
    n_reduced = math.prod(x.shape[d] for d in dims)
    if n_reduced == 0:
        return Reduction(x, 1, 0, out.numel(), 0, 0, 0)
    kept, reduced = _kept_and_reduced(out, x, dims)
    if len(kept) > 2 or len(reduced) > 1:
        x = _with_neighbouring(x, dims)
        kept, reduced = _kept_and_reduced(out, x, dims)
    one = Dimension(1, (0, 0))
    outer = kept[0] if len(kept) == 2 else one
    inner = kept[-1] if kept else one
    return Reduction(
        x,
        outer.size,
        n_reduced,
        inner.size,
        outer.strides[1],
        reduced[0].strides[0] if reduced else 0,
        inner.strides[1],
    )


def _kept_and_reduced(
    out: Tensor, x: Tensor, dims: tuple[int, ...]
) -> tuple[list[Dimension], list[Dimension]]:
    first_kept: Any = tuple(0 if d in dims else slice(None) for d in range(x.dim()))
    first_reduced: Any = tuple(slice(None) if d in dims else 0 for d in range(x.dim()))
    return collapse((out, x[first_kept])), collapse((x[first_reduced],))


def _with_neighbouring(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """A copy of x in which some dimensions are adjacent in memory."""
    order = sorted(range(x.dim()), key=x.stride, reverse=True)
    last = min((x.stride(d) for d in dims if x.shape[d] > 1), default=0)
    outer = [d for d in order if d not in dims and x.stride(d) >= last]
    inner = [d for d in order if d not in dims and x.stride(d) < last]
    order = [*outer, *(d for d in order if d in dims), *inner]
    return (
        x.permute(order).contiguous().permute([order.index(d) for d in range(x.dim())])
    )
