"""SwiGLU, a linear unit gated by SiLU, and its backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bindings import check
from bindings.library import call, register
from bindings.op import Argument, Gradient, Op
from bindings.ops import _glu as glu

_NAMES = ("gate", "up")


def swiglu(gate: Tensor, up: Tensor | None = None, *, backend: str = "cuda") -> Tensor:
    """A linear unit gated by SiLU: silu(gate) * up.

    silu(x) = x / (1 + exp(-x)). Without `up`, the first half of gate's last dimension
    is gated and the second half is the other factor, as in LLaMA if its two projections
    are fused; note that geglu has its gate last. Computed in float32 and rounded once.
    The result has the memory format of gate, or of its half. Tensors with more than two
    groups of dimensions that cannot be merged are copied first. Autograd differentiates
    it once, by swiglu_backward of the same backend.

    silu(inf) = inf, silu(-inf) = NaN (-inf * 0), silu(NaN) = NaN, and large finite x
    give x or -0, as in PyTorch.

    Args:
        gate: Any shape; float32, float16 or bfloat16. Without up, (..., 2 n) for a
            result of (..., n).
        up: None, or a tensor with the shape, dtype and device of gate.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor with the dtype of gate, and the shape of gate or of its half.

    Raises:
        TypeError: An argument is not a tensor, or dtypes are not supported or differ.
        ValueError: Shapes or devices differ, gate has no halves, or the backend is
            unknown.

    Source: Shazeer 2020, arXiv:2002.05202.
    """
    glu.is_pair("swiglu", _NAMES, gate, up)
    return call(OP, backend, gate, up)


def swiglu_backward(
    grad: Tensor, gate: Tensor, up: Tensor | None = None, *, backend: str = "cuda"
) -> Tensor:
    """The gradients of swiglu's inputs from that of its output.

    They are grad * up * silu'(gate) for the gate and grad * silu(gate) for the other
    factor, computed in float32 and rounded once. Without `up`, the result is the
    gradient of gate, in its memory format and with its halves. With `up`, it is both
    gradients in the memory format of gate, one behind the other: `gate_grad, up_grad =
    swiglu_backward(grad, gate, up)`. Tensors with more than two groups of dimensions
    that cannot be merged are copied first.

    Args:
        grad: The gradient of swiglu's output, with the output's shape and the dtype and
            device of gate.
        gate: As passed to swiglu.
        up: As passed to swiglu.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor with the dtype and shape of gate; with up, of shape (2, *gate.shape).

    Raises:
        TypeError: An argument is not a tensor, or dtypes are not supported or differ.
        ValueError: Shapes or devices differ, gate has no halves, or the backend is
            unknown.

    Source: Shazeer 2020, arXiv:2002.05202.
    """
    check.is_tensor("swiglu_backward", "grad", grad)
    glu.is_pair("swiglu_backward", _NAMES, gate, up)
    return call(BACKWARD, backend, grad, gate, up)


def _allocate(gate: Tensor, up: Tensor | None = None) -> Tensor:
    return glu.allocate("swiglu", _NAMES, gate, up)


def _operands(
    out: Tensor, gate: Tensor, up: Tensor | None = None
) -> tuple[Argument, ...]:
    return glu.arguments(out, gate, up)


def _reference(gate: Tensor, up: Tensor | None = None) -> Tensor:
    gate, up = glu.pair(gate, up)
    return torch.nn.functional.silu(gate) * up


def _allocate_backward(grad: Tensor, gate: Tensor, up: Tensor | None = None) -> Tensor:
    return glu.allocate_backward("swiglu_backward", _NAMES, grad, gate, up)


def _operands_backward(
    out: Tensor, grad: Tensor, gate: Tensor, up: Tensor | None = None
) -> tuple[Argument, ...]:
    return glu.arguments_backward(out, grad, gate, up)


def _reference_backward(grad: Tensor, gate: Tensor, up: Tensor | None = None) -> Tensor:
    x, factor = glu.pair(gate, up)
    return glu.joined(
        factor * torch.ops.aten.silu_backward(grad, x),
        grad * torch.nn.functional.silu(x),
        up,
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _compute(run: Any, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    gate, up = ctx.saved_tensors
    return glu.split(run(BACKWARD, grad, gate, up), up)


BACKWARD = register(
    Op(
        name="swiglu_backward",
        forward="swiglu",
        schema="(Tensor grad, Tensor gate, Tensor? up=None) -> Tensor",
        allocate=_allocate_backward,
        operands=_operands_backward,
        reference=_reference_backward,
    )
)

OP = register(
    Op(
        name="swiglu",
        schema="(Tensor gate, Tensor? up=None) -> Tensor",
        allocate=_allocate,
        operands=_operands,
        reference=_reference,
        gradient=Gradient(save=_save, compute=_compute),
    )
)
