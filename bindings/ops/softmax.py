"""Softmax along one dimension, and its backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bindings import check, layout
from bindings.library import call, register
from bindings.op import Argument, Gradient, Op


def softmax(x: Tensor, dim: int = -1, *, backend: str = "cuda") -> Tensor:
    """Exponentials along a dimension, scaled to a sum of one.

    exp(x - max(x)) / sum(exp(x - max(x))), computed in float32 and rounded once. A row
    that holds NaN or +inf, or nothing but -inf, is NaN; -inf beside a finite value
    is 0. Autograd differentiates it once, by softmax_backward of the same backend.

    A contiguous `dim` is read in place, whatever the strides of the others (three
    groups of them that cannot be merged are copied first), and the result has the
    memory format of x. For any other `dim`, x is copied with that dimension innermost,
    and the result keeps the strides of that copy.

    Args:
        x: Any shape, even 0-d; float32, float16 or bfloat16.
        dim: The dimension that sums to one; negative values count from the last.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of x.

    Raises:
        TypeError: x is not a tensor, its dtype is not supported, or dim is not an int.
        IndexError: x has no such dim.
        ValueError: The backend is unknown.

    Source: Milakov & Gimelshein 2018, arXiv:1805.02867.
    """
    check.is_tensor("softmax", "x", x)
    check.dimension("softmax", "dim", dim, x)
    return call(OP, backend, x, dim)


def softmax_backward(
    grad: Tensor, y: Tensor, dim: int = -1, *, backend: str = "cuda"
) -> Tensor:
    """The gradient of softmax's input from that of its output.

    y * (grad - sum(grad * y)) with the sum along a dimension, computed in float32 and
    rounded once.

    A tensor whose `dim` is contiguous is read in place, whatever the strides of the
    other dimensions (three groups of them that cannot be merged are copied first); any
    other is copied. The result has the memory format of y if `dim` is contiguous there,
    else `dim` is innermost.

    Args:
        grad: The gradient of softmax's output, with the shape, dtype and device of y.
        y: The result of softmax: any shape, even 0-d; float32, float16 or bfloat16.
        dim: The dimension along which y sums to one; negative values count from the
            last.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of y.

    Raises:
        TypeError: An argument is not a tensor, dtypes are not supported or differ, or
            dim is not an int.
        IndexError: y has no such dim.
        ValueError: Shapes or devices differ, or the backend is unknown.

    Source: the chain rule, with d y[i] / d x[j] = y[i] * ((i == j) - y[j]).
    """
    check.is_tensor("softmax_backward", "grad", grad)
    check.is_tensor("softmax_backward", "y", y)
    check.dimension("softmax_backward", "dim", dim, y)
    return call(BACKWARD, backend, grad, y, dim)


def _allocate(x: Tensor, dim: int = -1) -> Tensor:
    check.is_supported("softmax", "x", x)
    return layout.empty_rows_like(x, check.dimension("softmax", "dim", dim, x))


def _operands(out: Tensor, x: Tensor, dim: int = -1) -> tuple[Argument, ...]:
    walk = layout.rows(out, x, dim=check.dimension("softmax", "dim", dim, x))
    return (
        out,
        *walk.inputs,
        walk.n_rows,
        walk.n_cols,
        walk.rows_per_batch,
        *walk.strides,
    )


def _reference(x: Tensor, dim: int = -1) -> Tensor:
    return torch.softmax(x, dim)


def _allocate_backward(grad: Tensor, y: Tensor, dim: int = -1) -> Tensor:
    check.is_supported("softmax_backward", "grad", grad)
    check.is_supported("softmax_backward", "y", y)
    check.agree("softmax_backward", "grad", grad, "y", y)
    check.same_shape("softmax_backward", "grad", grad, "y", y)
    dim = check.dimension("softmax_backward", "dim", dim, y)
    return layout.empty_rows_like(y, dim)


def _operands_backward(
    out: Tensor, grad: Tensor, y: Tensor, dim: int = -1
) -> tuple[Argument, ...]:
    dim = check.dimension("softmax_backward", "dim", dim, y)
    walk = layout.rows(out, grad, y, dim=dim)
    return (
        out,
        *walk.inputs,
        walk.n_rows,
        walk.n_cols,
        walk.rows_per_batch,
        *walk.strides,
    )


def _reference_backward(grad: Tensor, y: Tensor, dim: int = -1) -> Tensor:
    # torch.softmax's own backward calls this op. PyTorch does not promise to keep it;
    # tests/test_gradients.py pins it to the formula.
    out: Tensor = torch.ops.aten._softmax_backward_data(grad, y, dim, y.dtype)
    return out


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, ctx.dim = inputs
    ctx.save_for_backward(output)


def _compute(run: Any, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (y,) = ctx.saved_tensors
    return run(BACKWARD, grad, y, ctx.dim), None


BACKWARD = register(
    Op(
        name="softmax_backward",
        forward="softmax",
        schema="(Tensor grad, Tensor y, int dim=-1) -> Tensor",
        allocate=_allocate_backward,
        operands=_operands_backward,
        reference=_reference_backward,
    )
)

OP = register(
    Op(
        name="softmax",
        schema="(Tensor x, int dim=-1) -> Tensor",
        allocate=_allocate,
        operands=_operands,
        reference=_reference,
        gradient=Gradient(save=_save, compute=_compute),
    )
)
