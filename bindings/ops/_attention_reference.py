"""Attention by PyTorch, which keeps all scores in memory: the reference of the op."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bindings.ops._attention_sequences import by_sequences

OPEN = -1  # of a window's side, for all keys: lists of a schema cannot hold None

# So many scores of all heads are computed at once: 2 GB in float64.
_MOST_SCORES = 1 << 28


def sharing(q: Tensor, k: Tensor) -> int:
    """How many heads of q share one of k and v; 1 where there are none at all."""
    return int(q.shape[-2] // k.shape[-2]) if k.shape[-2] else 1


def scale_of(scale: float | None, head_dim: int) -> float:
    """What scores are multiplied by."""
    return float(head_dim**-0.5 if scale is None else scale)


def visible_sides(
    causal: bool, window: Sequence[int] | None, longest: int
) -> tuple[int, int]:
    """The keys a query sees before and behind its own; `longest` stands for all."""
    left, right = (OPEN, OPEN) if window is None else window
    if causal:
        right = 0
    left, right = (longest if size == OPEN else size for size in (left, right))
    return min(left, longest), min(right, longest)


def _by_heads(
    compute: Callable[..., tuple[Tensor, ...]],
) -> Callable[..., tuple[Tensor, ...]]:
    """The same function, a head of k and v at a time where all scores are too many.

    Its tensors are of (batch, sequence, heads, head_dim) or (batch, heads, sequence),
    those it takes and those it returns; the first is like q, the third like k.
    """

    @functools.wraps(compute)
    def computed(*arguments: Any, **options: Any) -> tuple[Tensor, ...]:
        tensors = [x for x in arguments if isinstance(x, Tensor)]
        (n_batches, n_queries, n_heads, _), keys = tensors[0].shape, tensors[2].shape
        if n_batches * n_heads * n_queries * keys[1] <= _MOST_SCORES:
            return compute(*arguments, **options)

        def part(x: Any, batch: int, head: int) -> Any:
            if not isinstance(x, Tensor):
                return x
            of_batch = x[batch : batch + 1]
            return of_batch.chunk(keys[2], _dimension_of_heads(x))[head]

        batches = []
        for batch in range(n_batches):
            parts = [
                compute(*(part(x, batch, head) for x in arguments), **options)
                for head in range(keys[2])
            ]
            outputs = zip(*parts, strict=True)
            batches.append([torch.cat(x, _dimension_of_heads(x[0])) for x in outputs])
        return tuple(torch.cat(x) for x in zip(*batches, strict=True))

    return computed


def _dimension_of_heads(x: Tensor) -> int:
    return 2 if x.dim() == 4 else 1


@by_sequences("q", "lse")
@_by_heads
def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    window: Sequence[int] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    deterministic: bool = True,  # as it is anyway
    *,
    is_wide: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attention by PyTorch; wide scores are in float32, as a fused kernel has them."""
    dtype = torch.promote_types(q.dtype, torch.float32) if is_wide else q.dtype
    scores = _scores(q.to(dtype), k.to(dtype), causal, window, scale, softcap)
    lse = torch.logsumexp(
        scores.to(torch.promote_types(scores.dtype, torch.float32)), -1
    )
    # A row without keys would be NaN, the exponentials of nothing over their sum.
    is_empty = (scores == -math.inf).all(-1, keepdim=True)
    p = torch.softmax(scores.masked_fill(is_empty, 0.0), -1)
    p = p.masked_fill(is_empty, 0.0).to(v.dtype)
    out = torch.matmul(p, _heads_first(q, v))
    return out.transpose(1, 2).contiguous(), lse


yardstick = functools.partial(reference, is_wide=True)


def _scores(
    q: Tensor,
    k: Tensor,
    causal: bool,
    window: Sequence[int] | None,
    scale: float | None,
    softcap: float | None,
) -> Tensor:
    """All scores by PyTorch: -inf for the keys that a query does not see."""
    n_queries, n_keys = q.shape[1], k.shape[1]
    scores = torch.matmul(q.transpose(1, 2), _heads_first(q, k).mT)
    scores = scores * scale_of(scale, q.shape[3])
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    left, right = visible_sides(causal, window, n_queries + n_keys)
    diagonal = torch.arange(n_queries, device=q.device)[:, None] + n_keys - n_queries
    keys = torch.arange(n_keys, device=q.device)
    is_seen = (keys >= diagonal - left) & (keys <= diagonal + right)
    return scores.masked_fill(~is_seen, -math.inf)


def _heads_first(q: Tensor, x: Tensor) -> Tensor:
    """A head of k or v for each of q, in (batch, heads, sequence, head_dim)."""
    return x.transpose(1, 2).repeat_interleave(sharing(q, x), 1)


def backward_at_once(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    grad_lse: Tensor | None = None,
    causal: bool = False,
    window: Sequence[int] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    deterministic: bool = True,  # as it is anyway
    *,
    is_wide: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The backward by PyTorch, of all heads at once.

    Wide scores, and their gradients, are in float32.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    dtype = wide if is_wide else q.dtype
    scores = _scores(q.to(dtype), k.to(dtype), causal, window, scale, softcap)
    heads = _heads_first(q, v).to(dtype)
    grad_p = torch.matmul(grad.transpose(1, 2).to(dtype), heads.mT)
    p = (scores.to(wide) - lse.masked_fill(lse == -math.inf, 0.0)[..., None]).exp()
    delta = (grad.to(wide) * out.to(wide)).sum(-1).transpose(1, 2)
    if grad_lse is not None:
        delta = delta - grad_lse
    grad_scores = p * (grad_p.to(wide) - delta[..., None])
    if softcap is not None:
        slope = 1 - (scores.to(wide) / softcap).square()
        grad_scores = torch.where(scores == -math.inf, 0.0, grad_scores * slope)
    p, grad_scores = p.to(q.dtype), grad_scores.to(q.dtype)
    factor = scale_of(scale, q.shape[3])
    grad_q = torch.matmul(grad_scores, _heads_first(q, k)) * factor
    grad_k = torch.matmul(grad_scores.mT, q.transpose(1, 2)) * factor
    grad_v = torch.matmul(p.mT, grad.transpose(1, 2))

    def shared(x: Tensor) -> Tensor:
        """The sum over the heads that share one of k and v."""
        summed: Tensor = x.unflatten(1, (k.shape[2], sharing(q, k))).sum(2)
        return summed

    grads = (grad_q, shared(grad_k), shared(grad_v))
    first, second, third = (x.transpose(1, 2).contiguous() for x in grads)
    return first, second, third


def backward_by_heads(
    at_once: Callable[..., Any],
) -> Callable[..., tuple[Tensor, ...]]:
    """The backward, by what computes that of all heads at once."""
    return by_sequences("q", "k", "v")(_by_heads(at_once))


reference_backward = backward_by_heads(backward_at_once)
yardstick_backward = functools.partial(reference_backward, is_wide=True)
