"""Cross entropy of logits and classes, and its backward."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bindings import check, layout
from bindings.library import call, call_any, register
from bindings.op import Argument, Gradient, Op

REDUCTIONS = ("none", "mean", "sum")


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    *,
    backend: str = "cuda",
) -> Tensor:
    """The cross entropy of softmax(logits) and the target, row by row.

    logsumexp(x) - (1 - label_smoothing) * x[target] - label_smoothing * mean(x) for
    each row x of the logits, computed in float32 and rounded once. The logits are read
    once, in one pass over rows of any length, and are not overwritten. Autograd
    differentiates the loss once, by cross_entropy_backward of the same backend, which
    reads them once more.

    The last dimension holds the classes, also of logits with more than two dimensions,
    where PyTorch has them in the second. Probabilities as targets are not supported.

    A row whose target is ignore_index is not read; its loss and its gradient are 0, and
    it does not count in the mean, which is NaN if no row does. Any other target that is
    not a class raises IndexError on the CPU. On a GPU, where reading it would mean
    waiting, it makes the loss and the gradient of its row NaN, as does a row of logits
    that holds NaN or +inf, or nothing but -inf.

    Contiguous classes are read in place, whatever the strides of the rows (three groups
    of dimensions that cannot be merged are copied first); logits whose classes are not
    contiguous are copied.

    Args:
        logits: (..., classes); float32, float16 or bfloat16.
        target: The class of each row: (...) of int64, on the device of the logits.
        ignore_index: The target of rows that do not count.
        label_smoothing: The part of the target, from 0 to 1, that all classes share.
        reduction: "mean" over the rows that count, "sum", or "none" for a loss per row.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        The loss in the dtype of the logits: 0-d, or (...) where reduction is "none".

    Raises:
        TypeError: An argument is not a tensor or number, or its dtype is not supported.
        ValueError: Shapes do not fit, devices differ, label_smoothing is out of bounds,
            or the reduction or the backend is unknown.
        IndexError: A target on the CPU is not a class.

    Source: Milakov & Gimelshein 2018, arXiv:1805.02867; Szegedy et al. 2015,
    arXiv:1512.00567 (label smoothing).
    """
    check.is_tensor("cross_entropy", "logits", logits)
    check.is_tensor("cross_entropy", "target", target)
    _check_parameters("cross_entropy", ignore_index, label_smoothing)
    check.one_of("cross_entropy", "reduction", reduction, REDUCTIONS)
    args = (logits, target, ignore_index, label_smoothing, reduction)
    loss: Tensor = call_any(OP, backend, *args)[0]
    return loss


def cross_entropy_backward(
    grad: Tensor,
    logits: Tensor,
    target: Tensor,
    logsumexp: Tensor,
    n_counted: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    *,
    backend: str = "cuda",
) -> Tensor:
    """The gradient of cross_entropy's logits from that of the loss.

    grad * (exp(x - logsumexp(x)) - (1 - label_smoothing) * one_hot(target) -
    label_smoothing / classes) for each row x of the logits, divided by n_counted;
    computed in float32 and rounded once. Logits are read and copied as by
    cross_entropy, and the result has their memory format if the classes are contiguous.
    Rows become 0 or NaN where their loss does.

    Args:
        grad: The gradient of the loss, 0-d, or of each row's loss, with the shape of
            target; the dtype and device of the logits.
        logits: As passed to cross_entropy.
        target: As passed to cross_entropy.
        logsumexp: The logsumexp of each row of the logits: (...) of float32.
        n_counted: The number of rows that count, where the loss is their mean: 0-d,
            float32.
        ignore_index: As passed to cross_entropy.
        label_smoothing: As passed to cross_entropy.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of the logits.

    Raises:
        TypeError: An argument is not a tensor or number, or its dtype is not supported.
        ValueError: Shapes do not fit, devices differ, label_smoothing is out of bounds,
            or the backend is unknown.
        IndexError: A target on the CPU is not a class.

    Source: the chain rule, with d logsumexp(x) / d x[i] = exp(x[i] - logsumexp(x)).
    """
    name = "cross_entropy_backward"
    tensors = {
        "grad": grad,
        "logits": logits,
        "target": target,
        "logsumexp": logsumexp,
    }
    if n_counted is not None:
        tensors["n_counted"] = n_counted
    for each, tensor in tensors.items():
        check.is_tensor(name, each, tensor)
    _check_parameters(name, ignore_index, label_smoothing)
    args = (grad, logits, target, logsumexp, n_counted, ignore_index, label_smoothing)
    return call(BACKWARD, backend, *args)


def _check_parameters(op: str, ignore_index: int, label_smoothing: float) -> None:
    check.is_int(op, "ignore_index", ignore_index)
    check.within(op, "label_smoothing", label_smoothing, 0, 1)


def _check_logits_and_target(op: str, logits: Tensor, target: Tensor) -> None:
    check.is_supported(op, "logits", logits)
    if logits.dim() == 0:
        raise ValueError(f"{op}: logits has shape (), expected a dimension of classes")
    _check_beside_logits(op, "target", target, torch.int64, logits)
    if target.shape != logits.shape[:-1]:
        raise ValueError(
            f"{op}: target has shape {tuple(target.shape)} and logits has "
            f"{tuple(logits.shape)}, expected the same without the last dimension"
        )


def _check_beside_logits(
    op: str, name: str, x: Tensor, dtype: torch.dtype, logits: Tensor
) -> None:
    if x.dtype != dtype:
        raise TypeError(f"{op}: {name} has dtype {x.dtype}, expected {dtype}")
    if x.device != logits.device:
        raise ValueError(
            f"{op}: logits is on {logits.device} and {name} on {x.device}, "
            "expected the same device"
        )


def _check_classes(op: str, logits: Tensor, target: Tensor, ignore_index: int) -> None:
    """Raises for a wrong class, on the CPU only: elsewhere reading it means waiting."""
    if target.device.type != "cpu":
        return
    n_classes = logits.shape[-1]
    is_wrong = ((target < 0) | (target >= n_classes)) & (target != ignore_index)
    if bool(is_wrong.any()):
        wrong = int(target[is_wrong][0])
        raise IndexError(
            f"{op}: target holds {wrong}, expected a class from 0 to {n_classes - 1}, "
            f"or ignore_index, which is {ignore_index}"
        )


def _allocate(
    logits: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the loss, the logsumexp of each row, and the number of rows that count.

    The number is computed, and needed, only where losses are added up.
    """
    _check_parameters("cross_entropy", ignore_index, label_smoothing)
    check.one_of("cross_entropy", "reduction", reduction, REDUCTIONS)
    _check_logits_and_target("cross_entropy", logits, target)
    is_reduced = reduction != "none"
    return (
        logits.new_empty(() if is_reduced else target.shape),
        logits.new_empty(target.shape, dtype=torch.float32),
        logits.new_empty(() if is_reduced else (0,), dtype=torch.float32),
    )


def _operands(
    loss: Tensor,
    logsumexp: Tensor,
    n_counted: Tensor,
    logits: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> tuple[Argument, ...]:
    _check_classes("cross_entropy", logits, target, ignore_index)
    # The rows are walked in the order of a contiguous tensor of logits.
    order = torch.empty(logits.shape, device="meta")
    walk = layout.rows(order, logits, dim=logits.dim() - 1)
    # A place for each row, so for as many blocks as a launcher may choose.
    partial = None
    if reduction != "none":
        partial = logits.new_empty((walk.n_rows, 2), dtype=torch.float32)
    return (
        loss,
        logsumexp,
        n_counted,
        partial,
        *walk.inputs,
        target.contiguous(),
        walk.n_rows,
        walk.n_cols,
        walk.rows_per_batch,
        *walk.strides,
        ignore_index,
        label_smoothing,
        reduction == "mean",
    )


def _reference(
    logits: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor, Tensor]:
    _check_classes("cross_entropy", logits, target, ignore_index)
    rows = logits.reshape(target.numel(), logits.shape[-1])
    classes = target.reshape(-1)
    is_counted = classes != ignore_index
    is_wrong = is_counted & ((classes < 0) | (classes >= logits.shape[-1]))
    if logits.shape[-1] == 0:
        label_smoothing = 0.0  # over no classes it would be 0 / 0
    # In float16 the sum over classes overflows, and on the CPU the sum over rows too.
    overflows = rows.dtype == torch.float16 and (label_smoothing > 0 or rows.is_cpu)
    loss = torch.nn.functional.cross_entropy(
        rows.float() if overflows else rows,
        # A wrong class would make PyTorch's CUDA kernel abort the process.
        classes.masked_fill(is_wrong, ignore_index),
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction=reduction,
    ).to(logits.dtype)
    logsumexp = torch.logsumexp(_wide(rows), 1)
    logsumexp = logsumexp.masked_fill(logsumexp.isposinf(), math.nan)  # as the loss
    logsumexp = logsumexp.masked_fill(~is_counted, -math.inf)  # of rows not read
    logsumexp = logsumexp.view(target.shape)
    if reduction == "none":
        loss = loss.masked_fill(is_wrong, math.nan).view(target.shape)
        return loss, logsumexp, logsumexp.new_empty(0)
    n_counted = is_counted.sum().to(logsumexp.dtype)
    return loss.masked_fill(is_wrong.any(), math.nan), logsumexp, n_counted


def _wide(x: Tensor) -> Tensor:
    """Converts x to float32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _allocate_backward(
    grad: Tensor,
    logits: Tensor,
    target: Tensor,
    logsumexp: Tensor,
    n_counted: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    name = "cross_entropy_backward"
    _check_parameters(name, ignore_index, label_smoothing)
    _check_logits_and_target(name, logits, target)
    check.is_supported(name, "grad", grad)
    check.agree(name, "grad", grad, "logits", logits)
    if grad.dim() and grad.shape != target.shape:
        raise ValueError(
            f"{name}: grad has shape {tuple(grad.shape)}, expected () or that of "
            f"target, {tuple(target.shape)}"
        )
    _check_beside_logits(name, "logsumexp", logsumexp, torch.float32, logits)
    check.same_shape(name, "logsumexp", logsumexp, "target", target)
    if n_counted is not None:
        _check_beside_logits(name, "n_counted", n_counted, torch.float32, logits)
        if n_counted.dim():
            raise ValueError(
                f"{name}: n_counted has shape {tuple(n_counted.shape)}, expected ()"
            )
    return layout.empty_rows_like(logits, logits.dim() - 1)


def _in_order_of(rows: Tensor, x: Tensor) -> Tensor:
    """Returns x, with one entry per row, contiguous in the rows' order in memory."""
    return x.contiguous() if rows.is_contiguous() else layout.like(rows[..., 0], x)


def _operands_backward(
    out: Tensor,
    grad: Tensor,
    logits: Tensor,
    target: Tensor,
    logsumexp: Tensor,
    n_counted: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> tuple[Argument, ...]:
    _check_classes("cross_entropy_backward", logits, target, ignore_index)
    walk = layout.rows(out, logits, dim=logits.dim() - 1)
    return (
        out,
        _in_order_of(out, grad) if grad.dim() else grad,
        *walk.inputs,
        _in_order_of(out, target),
        _in_order_of(out, logsumexp),
        n_counted,
        walk.n_rows,
        walk.n_cols,
        1 if grad.dim() else 0,
        walk.rows_per_batch,
        *walk.strides,
        ignore_index,
        label_smoothing,
    )


def _reference_backward(
    grad: Tensor,
    logits: Tensor,
    target: Tensor,
    logsumexp: Tensor,
    n_counted: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    # The formula, since PyTorch's own backward needs values that are not saved here.
    _check_classes("cross_entropy_backward", logits, target, ignore_index)
    n_classes = logits.shape[-1]
    classes = torch.arange(n_classes, device=target.device)
    one_hot = (target.unsqueeze(-1) == classes).to(logsumexp.dtype)
    wanted = one_hot - label_smoothing * (one_hot - 1 / max(n_classes, 1))
    scale = grad.to(logsumexp.dtype) / (1 if n_counted is None else n_counted)
    is_class = (target >= 0) & (target < n_classes)
    scale = scale.expand(target.shape).masked_fill(~is_class, math.nan)
    probabilities = torch.exp(logits.to(logsumexp.dtype) - logsumexp.unsqueeze(-1))
    out = scale.unsqueeze(-1) * (probabilities - wanted)
    out = out.masked_fill((target == ignore_index).unsqueeze(-1), 0.0)
    return out.to(logits.dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, target, ctx.ignore_index, ctx.label_smoothing, reduction = inputs
    _, logsumexp, n_counted = output
    ctx.is_mean = reduction == "mean"
    ctx.save_for_backward(logits, target, logsumexp, n_counted)
    ctx.mark_non_differentiable(logsumexp, n_counted)


def _compute(run: Any, ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    *saved, n_counted = ctx.saved_tensors
    divisor = n_counted if ctx.is_mean else None
    parameters = ctx.ignore_index, ctx.label_smoothing
    return run(BACKWARD, grad, *saved, divisor, *parameters), None, None, None, None


BACKWARD = register(
    Op(
        name="cross_entropy_backward",
        forward="cross_entropy",
        schema="(Tensor grad, Tensor logits, Tensor target, Tensor logsumexp, "
        "Tensor? n_counted=None, int ignore_index=-100, float label_smoothing=0.0) "
        "-> Tensor",
        allocate=_allocate_backward,
        operands=_operands_backward,
        reference=_reference_backward,
    )
)

OP = register(
    Op(
        name="cross_entropy",
        schema="(Tensor logits, Tensor target, int ignore_index=-100, "
        'float label_smoothing=0.0, str reduction="mean") -> (Tensor, Tensor, Tensor)',
        allocate=_allocate,
        operands=_operands,
        reference=_reference,
        gradient=Gradient(save=_save, compute=_compute),
    )
)
