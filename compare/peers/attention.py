"""Attention by others."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, flex_attention, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from bindings.op import Outputs
from bindings.ops._attention_reference import backward_at_once, backward_by_heads
from compare.peers import Peer, compiled, using

Three = tuple[Tensor, Tensor, Tensor]

# FlashAttention 4 compiles for most of a minute: it is asked, before it is imported, to
# keep on disk what it has compiled.
os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "1")


class _Options(NamedTuple):
    """The op's arguments behind its tensors."""

    causal: bool = False
    window: Sequence[int] | None = None
    scale: float | None = None
    softcap: float | None = None
    deterministic: bool = True
    cu_seqlens_q: Tensor | None = None
    cu_seqlens_k: Tensor | None = None

    @classmethod
    def of(cls, arguments: Sequence[Any]) -> _Options:
        """Raises for packed sequences, for which the peers have other functions."""
        options = cls(*arguments)
        if options.cu_seqlens_q is not None or options.cu_seqlens_k is not None:
            raise ValueError("it is called with batches alone")
        return options

    @property
    def sides(self) -> tuple[int | None, int | None]:
        """The keys before and behind, None for all."""
        left, right = (None if size < 0 else size for size in self.window or (-1, -1))
        return left, 0 if self.causal else right


def _heads_first(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.transpose(1, 2) for x in tensors)


def _check_mask(q: Tensor, k: Tensor, options: _Options) -> None:
    """Raises for what scaled_dot_product_attention computes with a mask alone."""
    if options.window is not None or options.softcap is not None:
        raise ValueError("it has no window and no softcap")
    if options.causal and q.shape[1] != k.shape[1]:
        raise ValueError("its first causal query is over the first key")


def _torch(q: Tensor, k: Tensor, v: Tensor, *arguments: Any) -> Tensor:
    options = _Options.of(arguments)
    _check_mask(q, k, options)
    queries, keys, values = _heads_first(q, k, v)
    out = scaled_dot_product_attention(
        *(queries, keys, values),
        is_causal=options.causal,
        scale=options.scale,
        enable_gqa=q.shape[2] != k.shape[2],
    )
    return out.transpose(1, 2)


def _cudnn(*arguments: Any) -> Tensor:
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return _torch(*arguments)


@functools.lru_cache(maxsize=16)
def _block_mask(
    n_queries: int, n_keys: int, left: int, right: int, device: torch.device
) -> flex_attention.BlockMask:
    def is_seen(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        diagonal = query + (n_keys - n_queries)
        return (key >= diagonal - left) & (key <= diagonal + right)

    return flex_attention.create_block_mask(
        is_seen, None, None, n_queries, n_keys, device=str(device)
    )


def _flex(
    flex: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, *arguments: Any
) -> Tensor:
    options = _Options.of(arguments)
    n_queries, n_keys, softcap = q.shape[1], k.shape[1], options.softcap or 0.0
    left, right = (
        n_queries + n_keys if size is None else size for size in options.sides
    )

    def cap(score: Tensor, *_: Tensor) -> Tensor:
        return softcap * torch.tanh(score / softcap)

    out: Tensor = flex(
        *_heads_first(q, k, v),
        score_mod=cap if softcap else None,
        block_mask=_block_mask(n_queries, n_keys, left, right, q.device)
        if options.causal or options.window
        else None,
        scale=options.scale,
        enable_gqa=q.shape[2] != k.shape[2],
    )
    return out.transpose(1, 2)


def _flash_attn(
    forward: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, *arguments: Any
) -> tuple[Tensor, Tensor]:
    options = _Options.of(arguments)
    out, lse, *_ = forward(
        *(q, k, v),
        softmax_scale=options.scale,
        window_size=options.sides,
        softcap=options.softcap or 0.0,
        return_lse=True,
    )
    return out, lse


# ---- Backward ------------------------------------------------------------------------


def _aten_backward(
    operator: Callable[..., Three], backend: str, *arguments: Any
) -> tuple[Tensor, ...]:
    """Calls a backward of PyTorch's, which wants a key's head for each of q."""
    grad, q, k, v, out, lse, grad_lse, *rest = arguments
    options = _Options.of(rest)
    _check_mask(q, k, options)
    if grad_lse is not None or q.shape[2] != k.shape[2]:
        raise ValueError("it has no gradient of lse, and no heads that share keys")
    tensors = _heads_first(grad, q, k, v, out)
    n_queries, n_keys = q.shape[1], k.shape[1]
    if backend == "cudnn":
        seed = lse.new_zeros((), dtype=torch.int64)  # of dropout, which there is not
        operands = (
            *(*tensors, lse.unsqueeze(-1), seed, seed, None, None, None),
            *(n_queries, n_keys, 0.0, options.causal),
        )
    else:
        seed = lse.new_zeros(2, dtype=torch.uint64)
        operands = (
            *(*tensors, lse, None, None),
            *(n_queries, n_keys, 0.0, options.causal, seed, seed),
        )
    return _heads_first(*operator(*operands, scale=options.scale))


def _flash_attn_backward(backward: Callable[..., Any], *arguments: Any) -> Three:
    grad, q, k, v, out, lse, grad_lse, *rest = arguments
    options = _Options.of(rest)
    left, right = options.sides
    grad_q, grad_k, grad_v, *_ = backward(
        *(q, k, v, out, grad, lse),
        softmax_scale=options.scale,
        softcap=options.softcap or 0.0,
        window_size_left=left,
        window_size_right=right,
        deterministic=options.deterministic,
        dlse=grad_lse,
    )
    return grad_q, grad_k, grad_v


def _of_aten(backend: str) -> Callable[[], Callable[..., Outputs]]:
    name = f"_scaled_dot_product_{backend}_attention_backward"
    return lambda: functools.partial(
        _aten_backward, getattr(torch.ops.aten, name), backend
    )


_OUT_ALONE = "the result alone, without the logarithms of sums"
_OPERATOR = (
    "an operator of ATen's, which PyTorch's autograd calls; it may add up grad_q in "
    "any order, whatever the call allows"
)

PEERS = (
    Peer("torch", lambda: _torch, _OUT_ALONE, n_outputs=1),
    Peer(
        "torch.compile",
        lambda: functools.partial(_flex, compiled(flex_attention.flex_attention)),
        f"flex_attention, whose block mask is made before; {_OUT_ALONE}",
        n_outputs=1,
    ),
    Peer("cudnn", lambda: _cudnn, _OUT_ALONE, n_outputs=1),
    Peer("flash-attn-4", using(_flash_attn, "flash_attn.cute:flash_attn_func")),
)
BACKWARD = (
    Peer("torch", _of_aten("flash"), f"FlashAttention 2, {_OPERATOR}"),
    Peer(
        "torch.compile",
        # The loop over heads stays outside: unrolled, it took a minute to compile.
        lambda: backward_by_heads(compiled(backward_at_once)),
        "the reference, by one head after the other where all scores are too many",
    ),
    Peer("cudnn", _of_aten("cudnn"), _OPERATOR),
    Peer(
        "flash-attn-4",
        using(_flash_attn_backward, "flash_attn.cute.interface:_flash_attn_bwd"),
        "a private function of the package, which takes the option deterministic, too",
    ),
)
