"""Code that gated linear units share, for two tensors or the two halves of one.

`names` are an op's names for its two parameters, which have the same shape. If the
second is None, the first holds both, side by side in its last dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bindings import check, layout
from bindings.op import Argument

Names = tuple[str, str]


def is_pair(op: str, names: Names, first: object, second: object) -> None:
    """Raises TypeError unless first is a tensor, and second a tensor or None."""
    check.is_tensor(op, names[0], first)
    if second is not None:
        check.is_tensor(op, names[1], second)


def pair(first: Tensor, second: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns both tensors, or the halves of a single one."""
    if second is not None:
        return first, second
    n_cols = first.shape[-1] // 2
    return first[..., :n_cols], first[..., n_cols:]


def checked_pair(
    op: str, names: Names, first: Tensor, second: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Returns the pair; raises for tensors that no kernel can serve."""
    check.is_supported(op, names[0], first)
    if second is not None:
        check.is_supported(op, names[1], second)
        check.agree(op, names[0], first, names[1], second)
        check.same_shape(op, names[0], first, names[1], second)
    elif first.dim() == 0 or first.shape[-1] % 2:
        raise ValueError(
            f"{op}: {names[0]} has shape {tuple(first.shape)}, expected an even last "
            f"dimension where {names[1]} is not given"
        )
    return pair(first, second)


def allocate(op: str, names: Names, first: Tensor, second: Tensor | None) -> Tensor:
    """Allocates an output in the memory format of the first tensor, or of its half."""
    return torch.empty_like(checked_pair(op, names, first, second)[0])


def allocate_backward(
    op: str, names: Names, grad: Tensor, first: Tensor, second: Tensor | None
) -> Tensor:
    """Allocates a single tensor's gradient, or two gradients one behind the other."""
    check.is_supported(op, "grad", grad)
    half = checked_pair(op, names, first, second)[0]
    check.agree(op, "grad", grad, names[0], first)
    if grad.shape != half.shape:
        raise ValueError(
            f"{op}: grad has shape {tuple(grad.shape)}, expected {tuple(half.shape)}"
        )
    if second is None:
        return torch.empty_like(first)
    strides = torch.empty_like(half, device="meta").stride()
    return half.new_empty_strided((2, *half.shape), (half.numel(), *strides))


def arguments(
    out: Tensor, first: Tensor, second: Tensor | None
) -> tuple[Argument, ...]:
    """Returns the arguments that both launchers of a forward take."""
    walk = layout.elementwise(out, *pair(first, second))
    return (out, *walk.inputs, walk.n_elements, walk.n_cols, *walk.strides)


def arguments_backward(
    out: Tensor, grad: Tensor, first: Tensor, second: Tensor | None
) -> tuple[Argument, ...]:
    """Returns the arguments that both launchers of a backward take."""
    halves = pair(out, None) if second is None else (out[0], out[1])
    walk = layout.elementwise(halves[0], grad, *pair(first, second))
    return (
        *halves,
        *walk.inputs,
        walk.n_elements,
        walk.n_cols,
        walk.out_stride_row,
        *walk.strides,
    )


def joined(first_grad: Tensor, second_grad: Tensor, second: Tensor | None) -> Tensor:
    """Joins two gradients in the layout of allocate_backward."""
    if second is None:
        return torch.cat((first_grad, second_grad), dim=-1)
    return torch.stack((first_grad, second_grad))


def split(grads: Tensor, second: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The gradient of each argument, None for one that was not given."""
    return (grads, None) if second is None else (grads[0], grads[1])
