"""Root mean square normalisation over the last dimension, and its backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bindings import check, layout
from bindings.library import call_any, register
from bindings.op import Argument, Gradient, Op
from bindings.ops import _norm as norm
from bindings.ops._device import count_sms


def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-6,
    *,
    backend: str = "cuda",
) -> Tensor:
    """Scales every row to a root mean square of one.

    x / sqrt(mean(x^2) + eps) * weight over the last dimension, computed in float32 and
    rounded once. Autograd differentiates it once with respect to x and weight, by
    rms_norm_backward of the same backend.

    A contiguous last dimension is read in place, whatever the strides of the others
    (three groups of them that cannot be merged are copied first), and the result has
    the memory format of x. Otherwise x is copied, and the result is contiguous.

    Args:
        x: At least one dimension; float32, float16 or bfloat16.
        weight: One factor for each column: the shape of x's last dimension, the dtype
            and device of x. None for ones.
        eps: Added to the mean of the squares.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of x.

    Raises:
        TypeError: An argument has the wrong type, or its dtype is not supported or not
            that of x.
        ValueError: A shape or a device does not fit x, or the backend is unknown.

    Source: Zhang & Sennrich 2019, arXiv:1910.07467.
    """
    check.is_tensor("rms_norm", "x", x)
    check.is_optional_tensor("rms_norm", "weight", weight)
    check.is_number("rms_norm", "eps", eps)
    out: Tensor = call_any(OP, backend, x, weight, eps)[0]
    return out


def rms_norm_backward(
    grad: Tensor,
    x: Tensor,
    rstd: Tensor,
    weight: Tensor | None = None,
    *,
    backend: str = "cuda",
) -> tuple[Tensor, Tensor]:
    """The gradients of rms_norm's x and weight from that of its output.

    With x_hat = x * rstd and g = grad * weight, they are
    rstd * (g - x_hat * mean(g * x_hat)), and the sum of grad * x_hat over all rows;
    computed in float32 and rounded once. The same call gives the same bits on every
    GPU of the same model.

    Strides are treated as in rms_norm.

    Args:
        grad: The gradient of rms_norm's output, with the shape, dtype and device of x.
        x: As passed to rms_norm.
        rstd: 1 / sqrt(mean(x^2) + eps) of every row, float32: the shape of x without
            its last dimension. The op twin::rms_norm_<backend> returns it too.
        weight: As passed to rms_norm.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        The gradients of x and weight; where there was no weight, the one that ones in
        its place would have.

    Raises:
        TypeError: An argument is not a tensor, or its dtype is not supported or not
            that of x.
        ValueError: A shape or a device does not fit x, or the backend is unknown.

    Source: Zhang & Sennrich 2019, arXiv:1910.07467.
    """
    check.is_tensor("rms_norm_backward", "grad", grad)
    check.is_tensor("rms_norm_backward", "x", x)
    check.is_tensor("rms_norm_backward", "rstd", rstd)
    check.is_optional_tensor("rms_norm_backward", "weight", weight)
    grads: tuple[Tensor, Tensor] = call_any(BACKWARD, backend, grad, x, rstd, weight)
    return grads


def _allocate(
    x: Tensor, weight: Tensor | None = None, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    norm.check_input("rms_norm", x)
    norm.check_weight("rms_norm", "weight", weight, x)
    out = norm.empty_output(x)
    return out, norm.empty_statistic(out)


def _operands(
    out: Tensor,
    rstd: Tensor,
    x: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-6,
) -> tuple[Argument, ...]:
    walk = layout.rows(out, x, dim=x.dim() - 1)
    return (
        out,
        rstd,
        *walk.inputs,
        norm.contiguous(weight),
        walk.n_rows,
        walk.n_cols,
        walk.rows_per_batch,
        *walk.strides,
        float(eps),
    )


def _reference(
    x: Tensor, weight: Tensor | None = None, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    out, rstd = torch.ops.aten._fused_rms_norm(x, x.shape[-1:], weight, eps)
    return out, rstd.squeeze(-1)


def _allocate_backward(
    grad: Tensor, x: Tensor, rstd: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    op = "rms_norm_backward"
    norm.check_input(op, x)
    check.is_supported(op, "grad", grad)
    check.agree(op, "grad", grad, "x", x)
    check.same_shape(op, "grad", grad, "x", x)
    norm.check_statistic(op, "rstd", rstd, x)
    norm.check_weight(op, "weight", weight, x)
    return norm.empty_output(x), x.new_empty(x.shape[-1:])


def _operands_backward(
    grad_x: Tensor,
    grad_weight: Tensor,
    grad: Tensor,
    x: Tensor,
    rstd: Tensor,
    weight: Tensor | None = None,
) -> tuple[Argument, ...]:
    walk = layout.rows(grad_x, grad, x, dim=x.dim() - 1)
    n_partials = norm.count_partials(
        walk.n_rows, walk.n_cols, x.element_size(), count_sms(x)
    )
    return (
        grad_x,
        grad_weight,
        norm.empty_partials(grad_x, 1, n_partials),
        norm.empty_row_means(grad_x, 1, walk.n_rows),
        *walk.inputs,
        norm.in_order_of_rows(grad_x, rstd),
        norm.contiguous(weight),
        walk.n_rows,
        walk.n_cols,
        n_partials,
        walk.rows_per_batch,
        *walk.strides,
    )


def _reference_backward(
    grad: Tensor, x: Tensor, rstd: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    if x.is_cuda:
        ones = x.new_ones(x.shape[-1:])
        grad_x, grad_weight = torch.ops.aten._fused_rms_norm_backward(
            grad,
            x,
            x.shape[-1:],
            rstd.unsqueeze(-1).contiguous(),
            ones if weight is None else weight,
            [True, True],
        )
        return grad_x, grad_weight
    # PyTorch has this backward for GPUs only.
    wide_grad, wide_x, rstd = grad.to(rstd.dtype), x.to(rstd.dtype), rstd.unsqueeze(-1)
    g = wide_grad if weight is None else wide_grad * weight
    x_hat = wide_x * rstd
    grad_x = rstd * (g - x_hat * (g * x_hat).mean(-1, keepdim=True))
    grad_weight = (wide_grad * x_hat).sum_to_size(x.shape[-1:])
    return grad_x.to(x.dtype), grad_weight.to(x.dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, _ = inputs
    _, rstd = output
    ctx.mark_non_differentiable(rstd)
    ctx.save_for_backward(x, rstd, weight)


def _compute(
    run: Any, ctx: Any, grad: Tensor, _: Tensor | None
) -> tuple[Tensor | None, ...]:
    x, rstd, weight = ctx.saved_tensors
    grad_x, grad_weight = run(BACKWARD, grad, x, rstd, weight)
    return grad_x, None if weight is None else grad_weight, None


BACKWARD = register(
    Op(
        name="rms_norm_backward",
        forward="rms_norm",
        schema=(
            "(Tensor grad, Tensor x, Tensor rstd, Tensor? weight=None)"
            " -> (Tensor, Tensor)"
        ),
        allocate=_allocate_backward,
        operands=_operands_backward,
        reference=_reference_backward,
    )
)

OP = register(
    Op(
        name="rms_norm",
        schema="(Tensor x, Tensor? weight=None, float eps=1e-6) -> (Tensor, Tensor)",
        allocate=_allocate,
        operands=_operands,
        reference=_reference,
        gradient=Gradient(save=_save, compute=_compute),
    )
)
