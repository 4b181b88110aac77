"""Rotary position embedding, and its backward."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from bindings import check, layout
from bindings.library import call, call_any, register, register_in_place
from bindings.op import Argument, Gradient, Op


def rotary(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    offset: int | Tensor = 0,
    *,
    backend: str = "cuda",
) -> Tensor:
    """Turns each pair of elements of x by the angle of its position.

    (a, b) becomes (a cos - b sin, b cos + a sin), computed in float32 and rounded once.
    cos and sin have a column for each pair to turn; the rest of head_dim is copied. The
    result has the memory format of x. An x whose head_dim is not contiguous is copied
    first.

    Only x has a gradient, which is the gradient of the result turned back.

    Args:
        x: (batch, sequence, heads, head_dim); float32, float16 or bfloat16.
        cos: (positions, rotary_dim / 2), of x's dtype or of float32.
        sin: The shape and dtype of cos.
        interleaved: Whether neighbours form a pair (GPT-J); otherwise an element of the
            first half of rotary_dim and one of the second half do (GPT-NeoX).
        offset: The position at which every sequence begins, or an int64 or int32 tensor
            with one for each, (batch). A tensor is not read before the launch, so a
            position that cos and sin lack gives NaN.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of x.

    Raises:
        TypeError: An argument has the wrong type, or its dtype is not supported.
        ValueError: Shapes do not fit, cos and sin are too short, devices differ, cos or
            sin requires a gradient, or the backend is unknown.

    Source: Su et al. 2021, arXiv:2104.09864.
    """
    _check("rotary", "x", x, cos, sin, offset)
    _check_no_gradient("rotary", cos, sin)
    cos, sin, offsets = _without_number(cos, sin, offset)
    return call(OP, backend, x, cos, sin, interleaved, offsets)


def rotary_(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    offset: int | Tensor = 0,
    *,
    backend: str = "cuda",
) -> Tensor:
    """Rotary in place: overwrites x with the result and returns it.

    It has no gradient, since autograd would need the overwritten values.

    Args:
        x: As for rotary, with a contiguous head_dim and no two elements in the same
            place.
        cos: As for rotary.
        sin: As for rotary.
        interleaved: As for rotary.
        offset: As for rotary.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        x.

    Raises:
        TypeError: As for rotary.
        ValueError: As for rotary; or x requires a gradient, or has a layout that cannot
            be written to.

    Source: Su et al. 2021, arXiv:2104.09864.
    """
    _check("rotary_", "x", x, cos, sin, offset)
    _check_no_gradient("rotary_", cos, sin)
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "rotary_: x requires a gradient, but rotary in place has none; call rotary "
            "instead"
        )
    if not _is_innermost(x) or _may_overlap(x):
        raise ValueError(
            f"rotary_: x has shape {tuple(x.shape)} and strides {x.stride()}, expected "
            "a contiguous head_dim and no two elements in one place"
        )
    cos, sin, offsets = _without_number(cos, sin, offset)
    call_any(OP, backend, x, cos, sin, interleaved, offsets, overload="in_place")
    return x


def rotary_backward(
    grad: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    offset: int | Tensor = 0,
    *,
    backend: str = "cuda",
) -> Tensor:
    """The gradient of rotary's x: `grad` turned by the negative angle.

    Args:
        grad: The gradient of rotary's result.
        cos: As passed to rotary.
        sin: As passed to rotary.
        interleaved: As passed to rotary.
        offset: As passed to rotary.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of grad.

    Raises:
        TypeError: As for rotary.
        ValueError: As for rotary.

    Source: Su et al. 2021, arXiv:2104.09864.
    """
    _check("rotary_backward", "grad", grad, cos, sin, offset)
    _check_no_gradient("rotary_backward", cos, sin)
    cos, sin, offsets = _without_number(cos, sin, offset)
    return call(BACKWARD, backend, grad, cos, sin, interleaved, offsets)


# The kernels count heads, and the elements of a head, in 32 bits; so many would hardly
# fit into the memory of a GPU.
_MOST = 2**30

# Where sequences begin: a position for all, a tensor with one for each, or None for 0.
Offset = int | Tensor | None


def _without_number(
    cos: Tensor, sin: Tensor, offset: Offset
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Moves a number into the tables: torch.library and kernels take none, or a tensor.

    Returns:
        cos and sin from that position on, and the offset if it is a tensor, else None.
    """
    if isinstance(offset, Tensor) or not offset:
        return cos, sin, offset if isinstance(offset, Tensor) else None
    return cos[offset:], sin[offset:], None


def _check(
    op: str, x_name: str, x: Tensor, cos: Tensor, sin: Tensor, offset: Offset
) -> None:
    for name, value in ((x_name, x), ("cos", cos), ("sin", sin)):
        check.is_tensor(op, name, value)
        check.is_supported(op, name, value)
    if x.dim() != 4:
        raise ValueError(
            f"{op}: {x_name} has shape {tuple(x.shape)}, expected (batch, sequence, "
            "heads, head_dim)"
        )
    if cos.dtype not in (x.dtype, torch.float32):
        raise TypeError(
            f"{op}: cos has dtype {cos.dtype}, expected {x.dtype} as {x_name} has, or "
            "torch.float32"
        )
    check.agree(op, "cos", cos, "sin", sin)
    _check_device(op, x_name, x, "cos", cos)
    _, seq_len, _, head_dim = x.shape
    if cos.dim() != 2 or 2 * cos.shape[1] > head_dim:
        raise ValueError(
            f"{op}: cos has shape {tuple(cos.shape)}, expected (positions, "
            f"rotary_dim / 2) with rotary_dim at most {head_dim}, the head_dim of "
            f"{x_name}"
        )
    if cos.shape != sin.shape:
        raise ValueError(
            f"{op}: cos has shape {tuple(cos.shape)} and sin has {tuple(sin.shape)}, "
            "expected the same"
        )
    if max(math.prod(x.shape[:3]), head_dim) >= _MOST:
        raise ValueError(
            f"{op}: {x_name} has shape {tuple(x.shape)}, expected fewer than {_MOST} "
            "heads in all, and elements of a head"
        )
    first = _check_offset(op, x_name, x, offset)
    if first + seq_len > cos.shape[0]:
        raise ValueError(
            f"{op}: cos has {cos.shape[0]} positions, expected at least "
            f"{first + seq_len}: {x_name} has a sequence of {seq_len} from position "
            f"{first} on"
        )


def _check_offset(op: str, x_name: str, x: Tensor, offset: Offset) -> int:
    """Raises for a bad offset; returns the least position that is sure to be needed."""
    if offset is None:
        return 0
    if not isinstance(offset, Tensor):
        if isinstance(offset, bool) or not isinstance(offset, (int, torch.SymInt)):
            raise TypeError(
                f"{op}: offset must be an int or a torch.Tensor, got "
                f"{type(offset).__name__}"
            )
        if offset < 0:
            raise ValueError(f"{op}: offset is {offset}, expected at least 0")
        return int(offset)
    if offset.dtype not in (torch.int64, torch.int32):
        raise TypeError(
            f"{op}: offset has dtype {offset.dtype}, expected torch.int64 or "
            "torch.int32"
        )
    if offset.shape != x.shape[:1]:
        raise ValueError(
            f"{op}: offset has shape {tuple(offset.shape)}, expected one for each "
            f"sequence, ({x.shape[0]},)"
        )
    _check_device(op, x_name, x, "offset", offset)
    return 0


def _check_device(op: str, x_name: str, x: Tensor, y_name: str, y: Tensor) -> None:
    if x.device != y.device:
        raise ValueError(
            f"{op}: {x_name} is on {x.device} and {y_name} on {y.device}, "
            "expected the same device"
        )


def _check_no_gradient(op: str, cos: Tensor, sin: Tensor) -> None:
    for name, table in (("cos", cos), ("sin", sin)):
        if table.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{op}: {name} requires a gradient, which there is none of; expected "
                f"{name}.detach()"
            )


def _is_innermost(x: Tensor) -> bool:
    return x.shape[-1] <= 1 or x.stride(-1) == 1


def _may_overlap(x: Tensor) -> bool:
    """Whether some dimension's stride is no larger than the extent of those within."""
    reach = 0
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _empty_like(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    return out if _is_innermost(x) and _is_innermost(out) else x.new_empty(x.shape)


def _allocate(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    offset: Offset = None,
) -> Tensor:
    _check("rotary", "x", x, cos, sin, offset)
    return _empty_like(x)


def _allocate_backward(
    grad: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    offset: Offset = None,
) -> Tensor:
    _check("rotary_backward", "grad", grad, cos, sin, offset)
    return _empty_like(grad)


def _operands(
    out: Tensor,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    offset: Offset = None,
    *,
    conjugate: bool = False,
) -> tuple[Argument, ...]:
    if not _is_innermost(x):
        x = layout.like(out, x)
    cos, sin, offsets = _without_number(cos, sin, offset)
    if not (_is_innermost(cos) and cos.stride() == sin.stride()):
        cos, sin = cos.contiguous(), sin.contiguous()
    batch, seq_len, n_heads, head_dim = x.shape
    return (
        out,
        x,
        cos,
        sin,
        None if offsets is None else offsets.to(torch.int64).contiguous(),
        batch * seq_len * n_heads,
        seq_len,
        n_heads,
        head_dim,
        cos.shape[1],
        cos.shape[0],
        *_steps(out),
        *_steps(x),
        cos.stride(0),
        cos.dtype == torch.float32,
        interleaved,
        conjugate,
    )


def _steps(x: Tensor) -> list[int]:
    """Strides from batch to batch, position to position, head to head, in elements."""
    # The stride of a dimension with one entry means nothing.
    return [x.stride(d) if x.shape[d] > 1 else 0 for d in range(3)]


def _reference(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    offset: Offset = None,
) -> Tensor:
    n_pairs, seq_len = cos.shape[1], x.shape[1]
    cos, sin, offsets = _without_number(cos, sin, offset)
    if offsets is None:
        cos, sin = cos[:seq_len], sin[:seq_len]
    else:
        cos, sin = _at_positions(offsets, seq_len, cos, sin)
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = (table.to(wide).unsqueeze(-2) for table in (cos, sin))
    pairs = x[..., : 2 * n_pairs].to(wide)
    if interleaved:
        first, second = pairs[..., ::2], pairs[..., 1::2]
    else:
        first, second = pairs[..., :n_pairs], pairs[..., n_pairs:]
    turned = (first * cos - second * sin, second * cos + first * sin)
    joined = (
        torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
    )
    return torch.cat((joined.to(x.dtype), x[..., 2 * n_pairs :]), -1)


def _at_positions(offsets: Tensor, seq_len: int, *tables: Tensor) -> tuple[Tensor, ...]:
    """The tables' row for each position, (batch, seq_len, n_pairs), or NaN for none."""
    positions = offsets.long()[:, None] + torch.arange(seq_len, device=offsets.device)
    last = tables[0].shape[0] - 1
    is_there = ((positions >= 0) & (positions <= last))[..., None]
    nearest = positions.clamp(0, last)
    return tuple(table[nearest].where(is_there, math.nan) for table in tables)


def _reference_backward(
    grad: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    offset: Offset = None,
) -> Tensor:
    return _reference(grad, cos, -sin, interleaved, offset)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, cos, sin, ctx.interleaved, offset = inputs
    ctx.save_for_backward(cos, sin, offset)


def _compute(run: Any, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    cos, sin, offset = ctx.saved_tensors
    turned_back = run(BACKWARD, grad, cos, sin, ctx.interleaved, offset)
    return turned_back, None, None, None, None


_SCHEMA = (
    "(Tensor{}, Tensor cos, Tensor sin, bool interleaved=False, Tensor? offset=None)"
    " -> Tensor"
)

BACKWARD = register(
    Op(
        name="rotary_backward",
        forward="rotary",
        launcher="rotary",  # which turns the other way
        schema=_SCHEMA.format(" grad"),
        allocate=_allocate_backward,
        operands=functools.partial(_operands, conjugate=True),
        reference=_reference_backward,
    )
)

OP = register(
    Op(
        name="rotary",
        schema=_SCHEMA.format(" x"),
        allocate=_allocate,
        operands=_operands,
        reference=_reference,
        gradient=Gradient(save=_save, compute=_compute, n_inputs=1),
    )
)

register_in_place(OP, _SCHEMA.format("(a!) x").replace("-> Tensor", "-> ()"))
