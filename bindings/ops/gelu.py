"""The Gaussian error linear unit and its backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bindings import check, layout
from bindings.library import call, register
from bindings.op import Argument, Gradient, Op

APPROXIMATIONS = ("none", "tanh")


def gelu(x: Tensor, approximate: str = "none", *, backend: str = "cuda") -> Tensor:
    """The Gaussian error linear unit of every element.

    x * Phi(x) with Phi the distribution function of the standard normal, computed in
    float32 and rounded once. The result has the memory format of x. An x with more than
    two groups of dimensions that cannot be merged is copied first.

    gelu(inf) = inf, gelu(-inf) = NaN (-inf * 0), gelu(NaN) = NaN, and large finite x
    give x or -0, as PyTorch's CUDA kernels do. Autograd differentiates it once, by
    gelu_backward of the same backend.

    Args:
        x: Any shape; float32, float16 or bfloat16.
        approximate: "none" for Phi by the error function, "tanh" for
            0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of x.

    Raises:
        TypeError: x is not a tensor, or its dtype is not supported.
        ValueError: approximate or the backend is unknown.

    Source: Hendrycks & Gimpel 2016, arXiv:1606.08415.
    """
    check.is_tensor("gelu", "x", x)
    check.one_of("gelu", "approximate", approximate, APPROXIMATIONS)
    return call(OP, backend, x, approximate)


def gelu_backward(
    grad: Tensor, x: Tensor, approximate: str = "none", *, backend: str = "cuda"
) -> Tensor:
    """The gradient of gelu's input from that of its output.

    grad * (Phi(x) + x * phi(x)) with Phi and phi the distribution function and density
    of the standard normal, or grad times the derivative of the approximation; computed
    in float32 and rounded once. The result has the memory format of x. Tensors with
    more than two groups of dimensions that cannot be merged are copied first.

    The derivative is NaN at inf, -inf (inf * 0) and NaN, and 1 or 0 at large finite x,
    as in PyTorch in float64.

    Args:
        grad: The gradient of gelu's output, with the shape, dtype and device of x.
        x: As passed to gelu: any shape; float32, float16 or bfloat16.
        approximate: As passed to gelu, "none" or "tanh".
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of x.

    Raises:
        TypeError: An argument is not a tensor, or dtypes are not supported or differ.
        ValueError: Shapes or devices differ, or approximate or the backend is unknown.

    Source: Hendrycks & Gimpel 2016, arXiv:1606.08415.
    """
    check.is_tensor("gelu_backward", "grad", grad)
    check.is_tensor("gelu_backward", "x", x)
    check.one_of("gelu_backward", "approximate", approximate, APPROXIMATIONS)
    return call(BACKWARD, backend, grad, x, approximate)


def _allocate(x: Tensor, approximate: str = "none") -> Tensor:
    check.is_supported("gelu", "x", x)
    check.one_of("gelu", "approximate", approximate, APPROXIMATIONS)
    return torch.empty_like(x)


def _operands(
    out: Tensor, x: Tensor, approximate: str = "none"
) -> tuple[Argument, ...]:
    walk = layout.elementwise(out, x)
    approximate_tanh = approximate == "tanh"
    return (
        out,
        *walk.inputs,
        walk.n_elements,
        walk.n_cols,
        *walk.strides,
        approximate_tanh,
    )


def _reference(x: Tensor, approximate: str = "none") -> Tensor:
    return torch.nn.functional.gelu(x, approximate=approximate)


def _allocate_backward(grad: Tensor, x: Tensor, approximate: str = "none") -> Tensor:
    check.is_supported("gelu_backward", "grad", grad)
    check.is_supported("gelu_backward", "x", x)
    check.agree("gelu_backward", "grad", grad, "x", x)
    check.same_shape("gelu_backward", "grad", grad, "x", x)
    check.one_of("gelu_backward", "approximate", approximate, APPROXIMATIONS)
    return torch.empty_like(x)


def _operands_backward(
    out: Tensor, grad: Tensor, x: Tensor, approximate: str = "none"
) -> tuple[Argument, ...]:
    walk = layout.elementwise(out, grad, x)
    approximate_tanh = approximate == "tanh"
    return (
        out,
        *walk.inputs,
        walk.n_elements,
        walk.n_cols,
        *walk.strides,
        approximate_tanh,
    )


def _reference_backward(grad: Tensor, x: Tensor, approximate: str = "none") -> Tensor:
    out: Tensor = torch.ops.aten.gelu_backward(grad, x, approximate=approximate)
    return out


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, ctx.approximate = inputs
    ctx.save_for_backward(x)


def _compute(run: Any, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (x,) = ctx.saved_tensors
    return run(BACKWARD, grad, x, ctx.approximate), None


BACKWARD = register(
    Op(
        name="gelu_backward",
        forward="gelu",
        schema='(Tensor grad, Tensor x, str approximate="none") -> Tensor',
        allocate=_allocate_backward,
        operands=_operands_backward,
        reference=_reference_backward,
    )
)

OP = register(
    Op(
        name="gelu",
        schema='(Tensor x, str approximate="none") -> Tensor',
        allocate=_allocate,
        operands=_operands,
        reference=_reference,
        gradient=Gradient(save=_save, compute=_compute),
    )
)
