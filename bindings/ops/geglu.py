"""GEGLU, a linear unit gated by GELU, and its backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bindings import check
from bindings.library import call, register
from bindings.op import Argument, Gradient, Op
from bindings.ops import _glu as glu

APPROXIMATIONS = ("none", "tanh")

_NAMES = ("value", "gate")


def geglu(
    value: Tensor,
    gate: Tensor | None = None,
    approximate: str = "none",
    *,
    backend: str = "cuda",
) -> Tensor:
    """A linear unit gated by GELU: value * gelu(gate).

    Without `gate`, the first half of value's last dimension is the value and the second
    half is gated, as in diffusers; note that swiglu has its gate first. Computed in
    float32 and rounded once. The result has the memory format of value, or of its half.
    Tensors with more than two groups of dimensions that cannot be merged are copied
    first. Autograd differentiates it once, by geglu_backward of the same backend.

    gelu(gate) at inf, -inf, NaN, and large finite values is as in `gelu`.

    Args:
        value: Any shape; float32, float16 or bfloat16. Without gate, (..., 2 n) for a
            result of (..., n).
        gate: None, or a tensor with the shape, dtype and device of value.
        approximate: "none" for GELU by the error function, "tanh" for its
            approximation, as in `gelu`.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor with the dtype of value, and the shape of value or of its half.

    Raises:
        TypeError: An argument is not a tensor, or dtypes are not supported or differ.
        ValueError: Shapes or devices differ, value has no halves, or approximate or the
            backend is unknown.

    Source: Shazeer 2020, arXiv:2002.05202.
    """
    glu.is_pair("geglu", _NAMES, value, gate)
    check.one_of("geglu", "approximate", approximate, APPROXIMATIONS)
    return call(OP, backend, value, gate, approximate)


def geglu_backward(
    grad: Tensor,
    value: Tensor,
    gate: Tensor | None = None,
    approximate: str = "none",
    *,
    backend: str = "cuda",
) -> Tensor:
    """The gradients of geglu's inputs from that of its output.

    They are grad * gelu(gate) for the value and grad * value * gelu'(gate) for the
    gate, computed in float32 and rounded once. Without `gate`, the result is the
    gradient of value, in its memory format: the value's half first, then the gate's.
    With `gate`, it is both gradients in the memory format of value, one behind the
    other: `value_grad, gate_grad = geglu_backward(grad, value, gate)`. Tensors with
    more than two groups of dimensions that cannot be merged are copied first.

    Args:
        grad: The gradient of geglu's output, with the output's shape and the dtype and
            device of value.
        value: As passed to geglu.
        gate: As passed to geglu.
        approximate: As passed to geglu, "none" or "tanh".
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor with the dtype and shape of value; with gate, of shape
        (2, *value.shape).

    Raises:
        TypeError: An argument is not a tensor, or dtypes are not supported or differ.
        ValueError: Shapes or devices differ, value has no halves, or approximate or the
            backend is unknown.

    Source: Shazeer 2020, arXiv:2002.05202.
    """
    check.is_tensor("geglu_backward", "grad", grad)
    glu.is_pair("geglu_backward", _NAMES, value, gate)
    check.one_of("geglu_backward", "approximate", approximate, APPROXIMATIONS)
    return call(BACKWARD, backend, grad, value, gate, approximate)


def _allocate(
    value: Tensor, gate: Tensor | None = None, approximate: str = "none"
) -> Tensor:
    check.one_of("geglu", "approximate", approximate, APPROXIMATIONS)
    return glu.allocate("geglu", _NAMES, value, gate)


def _operands(
    out: Tensor, value: Tensor, gate: Tensor | None = None, approximate: str = "none"
) -> tuple[Argument, ...]:
    return (*glu.arguments(out, value, gate), approximate == "tanh")


def _reference(
    value: Tensor, gate: Tensor | None = None, approximate: str = "none"
) -> Tensor:
    value, gate = glu.pair(value, gate)
    return value * torch.nn.functional.gelu(gate, approximate=approximate)


def _allocate_backward(
    grad: Tensor,
    value: Tensor,
    gate: Tensor | None = None,
    approximate: str = "none",
) -> Tensor:
    check.one_of("geglu_backward", "approximate", approximate, APPROXIMATIONS)
    return glu.allocate_backward("geglu_backward", _NAMES, grad, value, gate)


def _operands_backward(
    out: Tensor,
    grad: Tensor,
    value: Tensor,
    gate: Tensor | None = None,
    approximate: str = "none",
) -> tuple[Argument, ...]:
    return (*glu.arguments_backward(out, grad, value, gate), approximate == "tanh")


def _reference_backward(
    grad: Tensor,
    value: Tensor,
    gate: Tensor | None = None,
    approximate: str = "none",
) -> Tensor:
    value, x = glu.pair(value, gate)
    return glu.joined(
        grad * torch.nn.functional.gelu(x, approximate=approximate),
        value * torch.ops.aten.gelu_backward(grad, x, approximate=approximate),
        gate,
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    value, gate, ctx.approximate = inputs
    ctx.save_for_backward(value, gate)


def _compute(run: Any, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    value, gate = ctx.saved_tensors
    grads = run(BACKWARD, grad, value, gate, ctx.approximate)
    return (*glu.split(grads, gate), None)


BACKWARD = register(
    Op(
        name="geglu_backward",
        forward="geglu",
        schema=(
            "(Tensor grad, Tensor value, Tensor? gate=None, "
            'str approximate="none") -> Tensor'
        ),
        allocate=_allocate_backward,
        operands=_operands_backward,
        reference=_reference_backward,
    )
)

OP = register(
    Op(
        name="geglu",
        schema='(Tensor value, Tensor? gate=None, str approximate="none") -> Tensor',
        allocate=_allocate,
        operands=_operands,
        reference=_reference,
        gradient=Gradient(save=_save, compute=_compute),
    )
)
