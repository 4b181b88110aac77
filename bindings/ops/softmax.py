"""Softmax along one dimension."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bindings import check, layout
from bindings.library import call, register
from bindings.op import Argument, CodeContract, Op, Traffic


def softmax(x: Tensor, dim: int = -1, *, backend: str = "cuda") -> Tensor:
    """Exponentials along a dimension, scaled to a sum of one.

    exp(x - max(x)) / sum(exp(x - max(x))), computed in float32 and rounded once. A row
    that holds NaN or +inf, or nothing but -inf, is NaN; -inf beside a finite value
    is 0.

    A contiguous `dim` is read in place, whatever the strides of the others (three
    groups of them that cannot be merged are copied first), and the result has the
    memory format of x. For any other `dim`, x is copied with that dimension innermost,
    and the result keeps the strides of that copy.

    Args:
        x: Any shape, also 0-d; float32, float16 or bfloat16.
        dim: The dimension that sums to one; negative values count from the last.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of x.

    Raises:
        TypeError: x is no tensor, its dtype is not supported, or dim is no int.
        IndexError: x has no such dim.
        ValueError: The backend is unknown.

    Source: Milakov & Gimelshein 2018, arXiv:1805.02867.
    """
    check.is_tensor("softmax", "x", x)
    check.dimension("softmax", "dim", dim, x)
    return call(OP, backend, x, dim)


def _is_innermost(x: Tensor, dim: int) -> bool:
    return x.dim() == 0 or x.shape[dim] <= 1 or x.stride(dim) == 1


def _allocate(x: Tensor, dim: int = -1) -> Tensor:
    check.is_supported("softmax", "x", x)
    dim = check.dimension("softmax", "dim", dim, x)
    out = torch.empty_like(x)
    if _is_innermost(x, dim) and _is_innermost(out, dim):
        return out
    return x.new_empty(x.movedim(dim, -1).shape).movedim(-1, dim)


def _arguments(out: Tensor, x: Tensor, dim: int = -1) -> tuple[Argument, ...]:
    dim = check.dimension("softmax", "dim", dim, x)
    if not _is_innermost(x, dim):
        x = layout.like(out, x)
    walk = layout.rows(out, x, dim)
    return (
        out,
        walk.x,
        walk.n_rows,
        walk.n_cols,
        walk.rows_per_batch,
        walk.stride_batch,
        walk.stride_row,
    )


def _reference(x: Tensor, dim: int = -1) -> Tensor:
    return torch.softmax(x, dim)


def _inputs(shape: tuple[int, ...], generator: torch.Generator) -> tuple[Tensor]:
    return (torch.randn(shape, generator=generator),)


def _traffic(shape: tuple[int, ...], element_size: int) -> Traffic:
    n_bytes = math.prod(shape) * element_size
    return Traffic(n_bytes, n_bytes)


OP = register(
    Op(
        name="softmax",
        schema="(Tensor x, int dim=-1) -> Tensor",
        allocate=_allocate,
        arguments=_arguments,
        reference=_reference,
        inputs=_inputs,
        traffic=_traffic,
        small_shape=(1823, 781),
        large_shape=(16384, 4096),
        benchmark_shapes=((32768, 1024), (16384, 4096), (8192, 32768), (4096, 131072)),
        sweep_shapes=tuple((4**n, 4096) for n in range(9)),
        edge_shapes=(
            (),
            (0, 5),
            (5, 0),
            (1, 1),
            (4, 1),
            (2, 3, 31),
            # The ends of the tiles in both languages, and a row count that fills none.
            *((3, n) for n in (33, 63, 64, 65, 255, 256, 257, 511, 512, 513)),
            *((3, n) for n in (1023, 1024, 1025, 2047, 2048, 2049)),
            *((2, n) for n in (4095, 4096, 4097, 8191, 8193, 16383, 16385)),
            *((2, n) for n in (32767, 32768, 32769, 40000)),
            (1, 131072),
            (1, 1048577),
            (37, 8),
            (1031, 12),
        ),
        code_contract=CodeContract(
            # A row in a warp, in a block, in shared memory, and read twice.
            shapes=((4096, 1008), (16384, 4096), (512, 40960), (64, 131072))
        ),
    )
)
