"""An activation of every element, by name, and its backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bindings import check, layout
from bindings.library import call, register
from bindings.op import Argument, Gradient, Op

# Launchers take an activation's index here; both languages number them alike.
LAUNCHED = ("none", "relu", "leaky_relu", "gelu", "gelu_tanh", "silu")
ACTIVATIONS = LAUNCHED[1:]


def activation(x: Tensor, activation: str = "relu", *, backend: str = "cuda") -> Tensor:
    """An activation of every element.

    Computed in float32 and rounded once; NaN stays NaN. The result has the memory
    format of x. An x with more than two groups of dimensions that cannot be merged is
    copied first. Autograd differentiates it once, by activation_backward of the same
    backend.

    Args:
        x: Any shape; float32, float16 or bfloat16.
        activation: "relu" for max(x, 0), "leaky_relu" for the larger of x and 0.01 x,
            "gelu" and "gelu_tanh" for `gelu` with the approximations "none" and "tanh",
            "silu" for x / (1 + exp(-x)).
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of x.

    Raises:
        TypeError: x is not a tensor, or its dtype is not supported.
        ValueError: The activation or the backend is unknown.

    Source: Maas et al. 2013, leaky ReLU; Hendrycks & Gimpel 2016, arXiv:1606.08415,
    GELU and SiLU.
    """
    check.is_tensor("activation", "x", x)
    check.one_of("activation", "activation", activation, ACTIVATIONS)
    return call(OP, backend, x, activation)


def activation_backward(
    grad: Tensor, x: Tensor, activation: str = "relu", *, backend: str = "cuda"
) -> Tensor:
    """The gradient of activation's input from that of its output.

    Computed in float32 and rounded once. At 0 the derivative of relu is 0 and that of
    leaky_relu 0.01, as in PyTorch. The result has the memory format of x. Tensors with
    more than two groups of dimensions that cannot be merged are copied first.

    Args:
        grad: The gradient of the output, with the shape, dtype and device of x.
        x: As passed to activation: any shape; float32, float16 or bfloat16.
        activation: As passed to activation.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of x.

    Raises:
        TypeError: An argument is not a tensor, or dtypes are not supported or differ.
        ValueError: Shapes or devices differ, or the activation or the backend is
            unknown.

    Source: as for activation.
    """
    check.is_tensor("activation_backward", "grad", grad)
    check.is_tensor("activation_backward", "x", x)
    check.one_of("activation_backward", "activation", activation, ACTIVATIONS)
    return call(BACKWARD, backend, grad, x, activation)


def _allocate(x: Tensor, activation: str = "relu") -> Tensor:
    check.is_supported("activation", "x", x)
    check.one_of("activation", "activation", activation, ACTIVATIONS)
    return torch.empty_like(x)


def _operands(out: Tensor, x: Tensor, activation: str = "relu") -> tuple[Argument, ...]:
    walk = layout.elementwise(out, x)
    return (
        out,
        *walk.inputs,
        walk.n_elements,
        walk.n_cols,
        *walk.strides,
        LAUNCHED.index(activation),
    )


_functional = torch.nn.functional

REFERENCES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": _functional.relu,
    "leaky_relu": _functional.leaky_relu,
    "gelu": _functional.gelu,
    "gelu_tanh": lambda x: _functional.gelu(x, approximate="tanh"),
    "silu": _functional.silu,
}


def _reference(x: Tensor, activation: str = "relu") -> Tensor:
    return REFERENCES[activation](x)


def _allocate_backward(grad: Tensor, x: Tensor, activation: str = "relu") -> Tensor:
    check.is_supported("activation_backward", "grad", grad)
    check.is_supported("activation_backward", "x", x)
    check.agree("activation_backward", "grad", grad, "x", x)
    check.same_shape("activation_backward", "grad", grad, "x", x)
    check.one_of("activation_backward", "activation", activation, ACTIVATIONS)
    return torch.empty_like(x)


def _operands_backward(
    out: Tensor, grad: Tensor, x: Tensor, activation: str = "relu"
) -> tuple[Argument, ...]:
    walk = layout.elementwise(out, grad, x)
    return (
        out,
        *walk.inputs,
        walk.n_elements,
        walk.n_cols,
        *walk.strides,
        LAUNCHED.index(activation),
    )


_aten = torch.ops.aten

_BACKWARD_REFERENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": lambda grad, x: _aten.threshold_backward(grad, x, 0),
    "leaky_relu": lambda grad, x: _aten.leaky_relu_backward(grad, x, 0.01, False),
    "gelu": _aten.gelu_backward,
    "gelu_tanh": lambda grad, x: _aten.gelu_backward(grad, x, approximate="tanh"),
    "silu": _aten.silu_backward,
}


def _reference_backward(grad: Tensor, x: Tensor, activation: str = "relu") -> Tensor:
    return _BACKWARD_REFERENCES[activation](grad, x)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, ctx.activation = inputs
    ctx.save_for_backward(x)


def _compute(run: Any, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (x,) = ctx.saved_tensors
    return run(BACKWARD, grad, x, ctx.activation), None


BACKWARD = register(
    Op(
        name="activation_backward",
        forward="activation",
        schema='(Tensor grad, Tensor x, str activation="relu") -> Tensor',
        allocate=_allocate_backward,
        operands=_operands_backward,
        reference=_reference_backward,
    )
)

OP = register(
    Op(
        name="activation",
        schema='(Tensor x, str activation="relu") -> Tensor',
        allocate=_allocate,
        operands=_operands,
        reference=_reference,
        gradient=Gradient(save=_save, compute=_compute),
    )
)
