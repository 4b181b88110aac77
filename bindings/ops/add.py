"""Addition with broadcasting."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bindings import check, layout
from bindings.library import call, register
from bindings.op import Argument, Gradient, Op
from bindings.ops.sum import OP as SUM


def add(x: Tensor, y: Tensor, *, backend: str = "cuda") -> Tensor:
    """Adds two tensors, which broadcast against each other as in PyTorch.

    The sum is formed in float32 and rounded once. The result has the memory format of
    the first argument that has its full shape. Inputs that broadcast in more than two
    groups of dimensions are copied into the result's layout first.

    Args:
        x: Any shape; float32, float16 or bfloat16.
        y: A shape that broadcasts with x's; the dtype and device of x.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        x + y, of the broadcast shape.

    Raises:
        TypeError: An argument is not a tensor, or dtypes are not supported or differ.
        ValueError: Shapes do not broadcast, devices differ, or the backend is unknown.

    Source: CUDA C++ Programming Guide, section 2.1; Triton's tutorial 01.
    """
    check.is_tensor("add", "x", x)
    check.is_tensor("add", "y", y)
    return call(OP, backend, x, y)


def _allocate(x: Tensor, y: Tensor) -> Tensor:
    check.is_supported("add", "x", x)
    check.is_supported("add", "y", y)
    check.agree("add", "x", x, "y", y)
    if x.shape == y.shape:
        return torch.empty_like(x)
    try:
        shape = torch.broadcast_shapes(x.shape, y.shape)
    except RuntimeError:
        raise ValueError(
            f"add: x of shape {tuple(x.shape)} and y of shape {tuple(y.shape)} do not "
            "broadcast: expected sizes that are equal, or 1, counted from the last"
        ) from None
    for operand in (x, y):
        if operand.shape == shape:
            return torch.empty_like(operand)
    return x.new_empty(shape)


def _operands(out: Tensor, x: Tensor, y: Tensor) -> tuple[Argument, ...]:
    walk = layout.elementwise(out, x, y)
    return (out, *walk.inputs, walk.n_elements, walk.n_cols, *walk.strides)


def _reference(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.shapes = tuple(operand.shape for operand in inputs)


def _gradient(run: Any, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return tuple(
        _sum_to(run, grad, shape) if is_needed else None
        for shape, is_needed in zip(ctx.shapes, ctx.needs_input_grad, strict=True)
    )


def _sum_to(run: Any, grad: Tensor, shape: torch.Size) -> Tensor:
    """The gradient of an operand, summed over the dimensions it was broadcast along."""
    n_new = grad.dim() - len(shape)
    broadcast = [
        d
        for d in range(grad.dim())
        if d < n_new or (shape[d - n_new] == 1 and grad.shape[d] != 1)
    ]
    if not broadcast:
        return grad
    total: Tensor = run(SUM, grad, broadcast, False)
    return total.view(shape)


OP = register(
    Op(
        name="add",
        schema="(Tensor x, Tensor y) -> Tensor",
        allocate=_allocate,
        operands=_operands,
        reference=_reference,
        gradient=Gradient(_save, _gradient),
    )
)
