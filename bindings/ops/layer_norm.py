"""Layer normalisation over the last dimension, and its backward."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bindings import check, layout
from bindings.library import call_any, register
from bindings.op import Argument, Gradient, Op
from bindings.ops import _norm as norm
from bindings.ops._device import count_sms


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    backend: str = "cuda",
) -> Tensor:
    """Shifts every row to a mean of zero and scales it to a variance of one.

    (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias over the last dimension, the
    variance being the mean of the squared differences; computed in float32 and rounded
    once. Autograd differentiates it once with respect to x, weight and bias, by
    layer_norm_backward of the same backend.

    A contiguous last dimension is read in place, whatever the strides of the others
    (three groups of them that cannot be merged are copied first), and the result has
    the memory format of x. Otherwise x is copied, and the result is contiguous.

    Args:
        x: At least one dimension; float32, float16 or bfloat16.
        weight: One factor for each column: the shape of x's last dimension, the dtype
            and device of x. None for ones.
        bias: One summand for each column, like weight. None for zeros.
        eps: Added to the variance.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of x.

    Raises:
        TypeError: An argument has the wrong type, or its dtype is not supported or not
            that of x.
        ValueError: A shape or a device does not fit x, or the backend is unknown.

    Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450.
    """
    check.is_tensor("layer_norm", "x", x)
    check.is_optional_tensor("layer_norm", "weight", weight)
    check.is_optional_tensor("layer_norm", "bias", bias)
    check.is_number("layer_norm", "eps", eps)
    out: Tensor = call_any(OP, backend, x, weight, bias, eps)[0]
    return out


def layer_norm_backward(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None = None,
    *,
    backend: str = "cuda",
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of layer_norm's x, weight and bias from that of its output.

    With x_hat = (x - mean) * rstd and g = grad * weight, they are
    rstd * (g - mean(g) - x_hat * mean(g * x_hat)), and the sums of grad * x_hat and
    grad over all rows; computed in float32 and rounded once. The same call gives the
    same bits on every GPU of the same model.

    Strides are treated as in layer_norm.

    Args:
        grad: The gradient of layer_norm's output, with the shape, dtype and device of
            x.
        x: As passed to layer_norm.
        mean: The mean of every row, float32: the shape of x without its last dimension.
            The op twin::layer_norm_<backend> returns it too.
        rstd: 1 / sqrt(variance(x) + eps) of every row, like mean.
        weight: As passed to layer_norm.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        The gradients of x, weight and bias; where there was no weight or bias, the one
        that ones or zeros in its place would have.

    Raises:
        TypeError: An argument is not a tensor, or its dtype is not supported or not
            that of x.
        ValueError: A shape or a device does not fit x, or the backend is unknown.

    Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450.
    """
    check.is_tensor("layer_norm_backward", "grad", grad)
    check.is_tensor("layer_norm_backward", "x", x)
    check.is_tensor("layer_norm_backward", "mean", mean)
    check.is_tensor("layer_norm_backward", "rstd", rstd)
    check.is_optional_tensor("layer_norm_backward", "weight", weight)
    grads: tuple[Tensor, Tensor, Tensor] = call_any(
        BACKWARD, backend, grad, x, mean, rstd, weight
    )
    return grads


def _allocate(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:
    norm.check_input("layer_norm", x)
    norm.check_weight("layer_norm", "weight", weight, x)
    norm.check_weight("layer_norm", "bias", bias, x)
    out = norm.empty_output(x)
    return out, norm.empty_statistic(out), norm.empty_statistic(out)


def _operands(
    out: Tensor,
    mean: Tensor,
    rstd: Tensor,
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Argument, ...]:
    walk = layout.rows(out, x, dim=x.dim() - 1)
    return (
        out,
        mean,
        rstd,
        *walk.inputs,
        norm.contiguous(weight),
        norm.contiguous(bias),
        walk.n_rows,
        walk.n_cols,
        walk.rows_per_batch,
        *walk.strides,
        float(eps),
    )


def _reference(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:
    # On the CPU, PyTorch keeps statistics in the dtype of x.
    dtype = x.dtype if x.is_cuda else torch.promote_types(x.dtype, torch.float32)
    out, mean, rstd = torch.ops.aten.native_layer_norm(
        x.to(dtype),
        x.shape[-1:],
        None if weight is None else weight.to(dtype),
        None if bias is None else bias.to(dtype),
        eps,
    )
    if x.shape[-1] == 0:  # 0 / 0, for which PyTorch returns a mean of 0
        mean, rstd = mean + math.nan, rstd + math.nan
    return out.to(x.dtype), mean.squeeze(-1), rstd.squeeze(-1)


def _allocate_backward(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    op = "layer_norm_backward"
    norm.check_input(op, x)
    check.is_supported(op, "grad", grad)
    check.agree(op, "grad", grad, "x", x)
    check.same_shape(op, "grad", grad, "x", x)
    norm.check_statistic(op, "mean", mean, x)
    norm.check_statistic(op, "rstd", rstd, x)
    norm.check_weight(op, "weight", weight, x)
    return (
        norm.empty_output(x),
        x.new_empty(x.shape[-1:]),
        x.new_empty(x.shape[-1:]),
    )


def _operands_backward(
    grad_x: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
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
        grad_bias,
        norm.empty_partials(grad_x, 2, n_partials),
        norm.empty_row_means(grad_x, 2, walk.n_rows),
        *walk.inputs,
        norm.in_order_of_rows(grad_x, mean),
        norm.in_order_of_rows(grad_x, rstd),
        norm.contiguous(weight),
        walk.n_rows,
        walk.n_cols,
        n_partials,
        walk.rows_per_batch,
        *walk.strides,
    )


def _reference_backward(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    if weight is None:
        weight = x.new_ones(x.shape[-1:])
    # On the CPU, PyTorch takes statistics only in the dtype of x.
    dtype = x.dtype if x.is_cuda else rstd.dtype
    grads = torch.ops.aten.native_layer_norm_backward(
        grad.to(dtype),
        x.to(dtype),
        x.shape[-1:],
        mean.unsqueeze(-1).contiguous(),
        rstd.unsqueeze(-1).contiguous(),
        weight.to(dtype),
        torch.zeros_like(weight, dtype=dtype),
        [True, True, True],
    )
    grad_x, grad_weight, grad_bias = (each.to(x.dtype) for each in grads)
    return grad_x, grad_weight, grad_bias


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, bias, _ = inputs
    _, mean, rstd = output
    ctx.mark_non_differentiable(mean, rstd)
    ctx.save_for_backward(x, mean, rstd, weight)
    ctx.has_bias = bias is not None


def _compute(
    run: Any, ctx: Any, grad: Tensor, *_: Tensor | None
) -> tuple[Tensor | None, ...]:
    x, mean, rstd, weight = ctx.saved_tensors
    grad_x, grad_weight, grad_bias = run(BACKWARD, grad, x, mean, rstd, weight)
    return (
        grad_x,
        None if weight is None else grad_weight,
        grad_bias if ctx.has_bias else None,
        None,
    )


BACKWARD = register(
    Op(
        name="layer_norm_backward",
        forward="layer_norm",
        schema=(
            "(Tensor grad, Tensor x, Tensor mean, Tensor rstd, Tensor? weight=None)"
            " -> (Tensor, Tensor, Tensor)"
        ),
        allocate=_allocate_backward,
        operands=_operands_backward,
        reference=_reference_backward,
    )
)

OP = register(
    Op(
        name="layer_norm",
        schema=(
            "(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-5)"
            " -> (Tensor, Tensor, Tensor)"
        ),
        allocate=_allocate,
        operands=_operands,
        reference=_reference,
        gradient=Gradient(save=_save, compute=_compute),
    )
)
