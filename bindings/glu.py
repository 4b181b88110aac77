"""What gated linear units share: two tensors of one shape, or the halves of one.

`names` are what an op calls its two parameters, of which the second may be None: then
the first holds both, side by side in its last dimension.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bindings import check, layout
from bindings.op import Argument, Traffic

Names = tuple[str, str]

# Around the ends of vectors and tiles, then rows, which begin where vectors do or not.
EDGES: tuple[tuple[int, ...], ...] = (
    *layout.ELEMENTWISE_EDGES,
    (2, 1),
    (37, 8),
    (5, 1024),
)

# Of three factors, whose products in float32 are not all finite beyond that; and of
# infinities PyTorch's derivatives are NaN, or not, by dtype and length.
LARGEST_INPUT_BACKWARD = 1e12

# From 4 KiB to 1 GiB of float32 in each tensor.
SWEEP = layout.ELEMENTWISE_SWEEP


def is_pair(op: str, names: Names, first: object, second: object) -> None:
    """Raises TypeError unless there are one or two tensors."""
    check.is_tensor(op, names[0], first)
    if second is not None:
        check.is_tensor(op, names[1], second)


def pair(first: Tensor, second: Tensor | None) -> tuple[Tensor, Tensor]:
    """Both tensors; of a single one, its halves."""
    if second is not None:
        return first, second
    n_cols = first.shape[-1] // 2
    return first[..., :n_cols], first[..., n_cols:]


def checked_pair(
    op: str, names: Names, first: Tensor, second: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The same; raises for those that no kernel can serve."""
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
    """An output in the memory format of the first tensor, or of a half."""
    return torch.empty_like(checked_pair(op, names, first, second)[0])


def allocate_backward(
    op: str, names: Names, grad: Tensor, first: Tensor, second: Tensor | None
) -> Tensor:
    """The gradient of a single tensor; of two, both gradients behind one another."""
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
    """What the launchers of a forward take."""
    walk = layout.elementwise(out, *pair(first, second))
    return (out, *walk.inputs, walk.n_elements, walk.n_cols, *walk.strides)


def arguments_backward(
    out: Tensor, grad: Tensor, first: Tensor, second: Tensor | None
) -> tuple[Argument, ...]:
    """What the launchers of a backward take."""
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


def away_from(x: Tensor, root: float) -> Tensor:
    """x, but for values within 0.1 of a root, which move on by 0.2.

    There a derivative is what is left of terms that cancel: rounding errors, so that
    nobody can judge a gradient by comparing it with itself.
    """
    return x + 0.2 * ((x - root).abs() < 0.1)


def joined(first_grad: Tensor, second_grad: Tensor, second: Tensor | None) -> Tensor:
    """Two gradients as allocate_backward lays them out."""
    if second is None:
        return torch.cat((first_grad, second_grad), dim=-1)
    return torch.stack((first_grad, second_grad))


def split(grads: Tensor, second: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The gradient of each argument, None of one that there is not."""
    return (grads, None) if second is None else (grads[0], grads[1])


def traffic(shape: tuple[int, ...], element_size: int) -> Traffic:
    """Of a forward on two tensors."""
    n_bytes = math.prod(shape) * element_size
    return Traffic(2 * n_bytes, n_bytes)


def traffic_backward(shape: tuple[int, ...], element_size: int) -> Traffic:
    """Of a backward on two tensors."""
    n_bytes = math.prod(shape) * element_size
    return Traffic(3 * n_bytes, 2 * n_bytes)
