"""Scaled dot product attention, and its backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bindings import check, library
from bindings.op import Argument, Gradient, Op
from bindings.ops._attention_reference import (
    OPEN,
    reference,
    reference_backward,
    scale_of,
    sharing,
    visible_sides,
)
from bindings.ops._attention_sequences import check_lengths, check_offsets
from bindings.ops._attention_splits import count_splits
from bindings.ops._device import is_hopper

MAX_HEAD_DIM = 256


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    deterministic: bool = True,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    *,
    return_lse: bool = False,
    backend: str = "cuda",
) -> Tensor | tuple[Tensor, Tensor]:
    """For every query, the mean of the values, weighted by softmax of its scores.

    softmax(scale * q k^T) v for each head, computed in float32 and rounded once. The
    last query is over the last key: query i of Sq is over key i + Sk - Sq of Sk, and a
    causal query sees the keys up to that one. A query that sees no key has 0 as its
    result.

    With fewer heads in k and v than in q, neighbouring heads of q share one of those
    (grouped-query attention; with a single one, multi-query attention).

    A contiguous head_dim is read in place, whatever the other strides, so that tensors
    of (batch, heads, sequence, head_dim) are passed as x.transpose(1, 2); the result
    has the memory format of q. Tensors of any other layout are copied.

    The same call gives the same bits on the same GPU. Where few queries of 16 bits see
    many keys, as in decoding, the keys are split into parts, whose number depends on
    all sizes, batch included, and on the GPU's multiprocessors; so do the last bits of
    the result.

    Autograd differentiates both results once with respect to q, k and v, by
    attention_backward of the same backend.

    Args:
        q: (batch, Sq, heads, head_dim); float32, float16 or bfloat16; a head_dim of 1
            to 256.
        k: (batch, Sk, kv_heads, head_dim), of q's dtype, where kv_heads divides heads.
        v: Of k's shape and q's dtype.
        causal: Whether a query sees no key behind the one that it is over.
        window: How many keys before and behind the one that it is over a query sees;
            None, alone or in place of a number, for all. A causal query sees none
            behind it in any window.
        scale: What scores are multiplied by; by default 1 / sqrt(head_dim).
        softcap: Where scaled scores s become softcap * tanh(s / softcap); None for no
            such bound.
        deterministic: Whether equal calls of the backward give the same bits. On Hopper
            blocks add up the gradient of q in memory; if not, they do so in any order
            instead of in turns, which is faster, and its last bits may differ; those of
            k and v stay the same. That is so for 16 bits and a head_dim of 128 at most;
            other calls stay deterministic.
        cu_seqlens_q: For packed sequences, whose tensors have no batch: where they lie,
            as in attention_varlen; None for batches.
        cu_seqlens_k: Likewise.
        return_lse: Whether the logarithm of each softmax's sum is returned too.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of q; where return_lse is true, also
        log(sum(exp(scores))) of every query and head: (batch, heads, Sq) of float32,
        -inf for a query that sees no key.

    Raises:
        TypeError: An argument has the wrong type, a dtype is not supported, or dtypes
            differ.
        ValueError: Shapes do not fit, devices differ, head_dim, window, scale or
            softcap is out of bounds, or the backend is unknown.

    Source: Vaswani et al. 2017, arXiv:1706.03762; Ainslie et al. 2023,
    arXiv:2305.13245 (shared heads); Beltagy et al. 2020, arXiv:2004.05150 (window);
    Gemma Team 2024, arXiv:2408.00118 (softcap).
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        check.is_tensor("attention", name, x)
    check.is_bool("attention", "causal", causal)
    check.is_bool("attention", "deterministic", deterministic)
    check.is_bool("attention", "return_lse", return_lse)
    _check_packed("attention", q, k, v, cu_seqlens_q, cu_seqlens_k)
    sizes = _window_sizes("attention", window)
    parameters = (causal, sizes, scale, softcap, deterministic)
    offsets = (cu_seqlens_q, cu_seqlens_k)
    out, lse = library.call_any(OP, backend, q, k, v, *parameters, *offsets)
    return (out, lse) if return_lse else out


def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    *,
    deterministic: bool = True,
    return_lse: bool = False,
    backend: str = "cuda",
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of sequences of any lengths, which follow each other without padding.

    Each is what attention makes of it alone, to the last bit on the same rung:
    sequence i has the queries from cu_seqlens_q[i] up to cu_seqlens_q[i + 1], and the
    keys likewise. Rows that belong to no sequence, in front of the first one or behind
    the last, get 0.

    This is a function beside attention since its tensors have other shapes, and since
    users of FlashAttention know these arguments in this order. It is the same op, whose
    schema has the offsets as optional tensors, and so autograd, torch.compile and all
    layouts work alike: attention takes them, too.

    Args:
        q: (total_queries, heads, head_dim), as in attention.
        k: (total_keys, kv_heads, head_dim), likewise.
        v: Of k's shape and q's dtype.
        cu_seqlens_q: Where sequences begin in q, and the last one ends: int32, on q's
            device, an offset more than there are sequences. They must not decrease, or
            lie outside of q. On a CPU they are checked; on a GPU, which is not waited
            for, wrong ones make wrong results, but never touch other memory.
        cu_seqlens_k: As many of k and v, likewise.
        max_seqlen_q: The most queries of a sequence. Kernels do without it, and it is
            but checked, where the offsets are.
        max_seqlen_k: The most keys, likewise.
        causal: As in attention, of each sequence for itself: its last query is over its
            last key.
        window: Likewise.
        scale: As in attention.
        softcap: As in attention.
        deterministic: Likewise; the backward of packed sequences always is.
        return_lse: Whether the logarithm of each softmax's sum is returned too.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of q; where return_lse is true, also
        log(sum(exp(scores))) of every head and query: (heads, total_queries) of
        float32, -inf for a query that sees no key.

    Raises:
        TypeError: An argument has the wrong type, a dtype is not supported, or dtypes
            differ.
        ValueError: Shapes do not fit, devices differ, offsets on a CPU are out of order
            or out of bounds, a sequence there is longer than it may be, head_dim,
            window, scale or softcap is out of bounds, or the backend is unknown.
    """
    op = "attention_varlen"
    tensors = {"q": q, "k": k, "v": v}
    offsets = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
    for name, x in (tensors | offsets).items():
        check.is_tensor(op, name, x)
    longest = (max_seqlen_q, max_seqlen_k)
    _check_packed(op, q, k, v, cu_seqlens_q, cu_seqlens_k, longest)
    return attention(
        *(q, k, v, causal, window, scale, softcap, deterministic),
        *(cu_seqlens_q, cu_seqlens_k),
        return_lse=return_lse,
        backend=backend,
    )


def attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    grad_lse: Tensor | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    deterministic: bool = True,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    *,
    backend: str = "cuda",
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of attention's q, k and v from those of its results.

    With p = exp(s - lse), the probabilities that softmax made of the scores s, and
    ds = p * (grad v^T - sum(grad * out) + grad_lse), they are scale * ds k,
    scale * ds^T q and p^T grad; computed in float32 and rounded once, and contiguous.
    The same call gives the same bits, unless it allows others. A head of k or v gets
    the sum over the heads of q that share it. Layouts are treated as in attention. On
    Hopper, for 16 bits and a head_dim of 128 at most, it takes memory for float32 sums
    of the gradient of q meanwhile, whose rows have 66 or 130 numbers.

    Args:
        grad: The gradient of attention's result, of q's shape and dtype.
        q: As passed to attention.
        k: As passed to attention.
        v: As passed to attention.
        out: What attention returned.
        lse: What attention returns with return_lse: (batch, heads, Sq) of float32.
        grad_lse: The gradient of lse, like lse; None for zeros.
        causal: As passed to attention.
        window: As passed to attention.
        scale: As passed to attention.
        softcap: As passed to attention.
        deterministic: As in attention.
        cu_seqlens_q: As passed to attention.
        cu_seqlens_k: As passed to attention.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        The gradients of q, k and v.

    Raises:
        TypeError: An argument has the wrong type, a dtype is not supported, or dtypes
            differ.
        ValueError: Shapes do not fit, devices differ, head_dim, window, scale or
            softcap is out of bounds, or the backend is unknown.

    Source: Dao et al. 2022, arXiv:2205.14135, appendix B.2.
    """
    tensors = {"grad": grad, "q": q, "k": k, "v": v, "out": out, "lse": lse}
    for name, x in tensors.items():
        check.is_tensor("attention_backward", name, x)
    check.is_optional_tensor("attention_backward", "grad_lse", grad_lse)
    check.is_bool("attention_backward", "causal", causal)
    check.is_bool("attention_backward", "deterministic", deterministic)
    _check_packed("attention_backward", q, k, v, cu_seqlens_q, cu_seqlens_k)
    sizes = _window_sizes("attention_backward", window)
    grads: tuple[Tensor, Tensor, Tensor] = library.call_any(
        BACKWARD,
        backend,
        *(grad, q, k, v, out, lse, grad_lse),
        *(causal, sizes, scale, softcap, deterministic, cu_seqlens_q, cu_seqlens_k),
    )
    return grads


def _window_sizes(op: str, window: object) -> list[int] | None:
    """A window as the op takes it, with OPEN for None; raises for anything else."""
    if window is None:
        return None
    if not isinstance(window, (tuple, list)):
        raise TypeError(
            f"{op}: window must be a pair of ints or None, got {type(window).__name__}"
        )
    if len(window) != 2:
        raise ValueError(f"{op}: window has {len(window)} entries, expected 2")
    for i, size in enumerate(window):
        if size is not None:
            check.is_int(op, f"window[{i}]", size)
            if size < 0:
                raise ValueError(
                    f"{op}: window[{i}] is {size}, expected 0 or more, or None"
                )
    return [OPEN if size is None else int(size) for size in window]


def _check_packed(
    op: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    longest: tuple[int | None, int | None] = (None, None),
) -> None:
    """Raises for packed sequences that are not where they should be, or too long."""
    check.is_optional_tensor(op, "cu_seqlens_q", cu_seqlens_q)
    check.is_optional_tensor(op, "cu_seqlens_k", cu_seqlens_k)
    if cu_seqlens_q is None or cu_seqlens_k is None:
        return  # one alone is refused by the op itself
    _check_inputs(op, q, k, v, cu_seqlens_q, cu_seqlens_k)
    check_lengths(op, "q", cu_seqlens_q, q.shape[0], longest[0])
    check_lengths(op, "k", cu_seqlens_k, k.shape[0], longest[1])


def _check_inputs(
    op: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
) -> None:
    """Raises for tensors that do not fit each other."""
    are_packed = cu_seqlens_q is not None or cu_seqlens_k is not None
    dimensions = ("rows",) if are_packed else ("batch", "sequence")
    for name, x in (("q", q), ("k", k), ("v", v)):
        check.is_supported(op, name, x)
        if x.dim() != len(dimensions) + 2:
            raise ValueError(
                f"{op}: {name} has shape {tuple(x.shape)}, expected "
                f"{len(dimensions) + 2} dimensions: {', '.join(dimensions)}, heads and "
                "head_dim"
            )
    check.agree(op, "q", q, "k", k)
    check.agree(op, "q", q, "v", v)
    check.same_shape(op, "k", k, "v", v)
    if (q.shape[:-3], q.shape[-1]) != (k.shape[:-3], k.shape[-1]):
        same = "head_dim" if are_packed else "batch and head_dim"
        raise ValueError(
            f"{op}: q has shape {tuple(q.shape)} and k has {tuple(k.shape)}, "
            f"expected the same {same}"
        )
    if not 1 <= q.shape[-1] <= MAX_HEAD_DIM:
        raise ValueError(
            f"{op}: head_dim is {q.shape[-1]}, expected 1 to {MAX_HEAD_DIM}"
        )
    if q.shape[-2] != k.shape[-2] * sharing(q, k):
        raise ValueError(
            f"{op}: q has {q.shape[-2]} heads and k has {k.shape[-2]}, "
            "expected a multiple of k's in q"
        )
    if are_packed:
        check_offsets(op, q, cu_seqlens_q, cu_seqlens_k)


def _check_parameters(op: str, scale: float | None, softcap: float | None) -> None:
    for name, value in (("scale", scale), ("softcap", softcap)):
        if value is not None:
            check.is_number(op, name, value)
            if not math.isfinite(value):
                raise ValueError(f"{op}: {name} is {value}, expected a finite number")
    if softcap is not None and softcap <= 0:
        raise ValueError(
            f"{op}: softcap is {softcap}, expected a positive number, or None"
        )


def _allocate(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    window: Sequence[int] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    deterministic: bool = True,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    _check_inputs("attention", q, k, v, cu_seqlens_q, cu_seqlens_k)
    _check_parameters("attention", scale, softcap)
    return _empty_like(q), q.new_empty(_rows_shape(q), dtype=torch.float32)


def _rows_shape(q: Tensor) -> tuple[int, ...]:
    """The shape of what there is a number of for each head and query."""
    *batch, n_queries, n_heads, _ = q.shape
    return (*batch, n_heads, n_queries)


def _empty_like(x: Tensor) -> Tensor:
    """A dense tensor of the shape of x whose head_dim is contiguous.

    Its other dimensions lie in memory in the order of those of x.
    """
    outer = range(x.dim() - 1)
    order = sorted(outer, key=lambda d: (x.stride(d), x.shape[d]), reverse=True)
    dense = x.new_empty([x.shape[d] for d in order] + [x.shape[-1]])
    return dense.permute([order.index(d) for d in outer] + [len(outer)])


def _operands(
    out: Tensor,
    lse: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    window: Sequence[int] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    deterministic: bool = True,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
) -> tuple[Argument, ...]:
    sizes = _sizes(q, k)
    q, k, v = (_rows_in_place(x) for x in (q, k, v))
    n_taken = torch.empty((), dtype=torch.int32, device=q.device)
    return (
        *(out, lse, n_taken, q, k, v),
        *sizes,
        *(stride for x in (out, q, k, v) for stride in _strides(x)),
        scale_of(scale, q.shape[-1]),
        float(softcap or 0.0),
        *visible_sides(causal, window, q.shape[-3] + k.shape[-3]),
        count_splits(q, k, causal, window),
        *_offsets(cu_seqlens_q, cu_seqlens_k),
    )


def _sizes(q: Tensor, k: Tensor) -> tuple[int, ...]:
    """What launchers are told of shapes: of packed sequences, as of a single one."""
    *batch, n_queries, n_heads, head_dim = q.shape
    n_keys, n_kv_heads, _ = k.shape[-3:]
    return *(batch or [1]), n_heads, n_kv_heads, n_queries, n_keys, head_dim


def _strides(x: Tensor) -> tuple[int, ...]:
    """Of batches, rows and heads. Packed sequences begin any number of rows apart."""
    return x.stride()[:3] if x.dim() == 4 else (x.stride(0), *x.stride()[:2])


def _offsets(
    cu_seqlens_q: Tensor | None, cu_seqlens_k: Tensor | None
) -> tuple[Argument, ...]:
    """The number of packed sequences, and where they are; 0 and None without any."""
    if cu_seqlens_q is None or cu_seqlens_k is None:
        return 0, None, None
    n_sequences = cu_seqlens_q.shape[0] - 1
    return n_sequences, cu_seqlens_q.contiguous(), cu_seqlens_k.contiguous()


def _workspace(
    rung: str,
    out: Tensor,
    lse: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    window: Sequence[int] | None = None,
    *_: Any,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """All scores, for the rung that keeps them in memory; what parts of keys give.

    That is for each row and part a row of out, and its largest score and sum.
    """
    if rung == "first":
        return lse.new_empty((*lse.shape, k.shape[1])), None, None
    n_splits = 0 if rung else count_splits(q, k, causal, window)
    if n_splits == 0:
        return None, None, None
    size = (*lse.shape, n_splits)
    return None, lse.new_empty((*size, q.shape[3])), lse.new_empty((*size, 2))


def _rows_in_place(x: Tensor) -> Tensor:
    """The tensor, or a copy where head_dim is not contiguous."""
    return x if x.shape[-1] == 1 or x.stride(-1) == 1 else x.contiguous()


def _allocate_backward(
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
    deterministic: bool = True,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    op = "attention_backward"
    _check_inputs(op, q, k, v, cu_seqlens_q, cu_seqlens_k)
    _check_parameters(op, scale, softcap)
    for name, x in (("grad", grad), ("out", out)):
        check.is_supported(op, name, x)
        check.agree(op, name, x, "q", q)
        check.same_shape(op, name, x, "q", q)
    for name, row in (("lse", lse), ("grad_lse", grad_lse)):
        if row is not None:
            _check_rows(op, name, row, q)
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _check_rows(op: str, name: str, x: Tensor, q: Tensor) -> None:
    """Raises unless x has a float32 for each row of scores."""
    if x.dtype != torch.float32:
        raise TypeError(f"{op}: {name} has dtype {x.dtype}, expected torch.float32")
    if x.device != q.device:
        raise ValueError(
            f"{op}: {name} is on {x.device} and q on {q.device}, "
            "expected the same device"
        )
    if tuple(x.shape) != _rows_shape(q):
        raise ValueError(
            f"{op}: {name} has shape {tuple(x.shape)}, expected {_rows_shape(q)} for q "
            f"of shape {tuple(q.shape)}"
        )


def _operands_backward(
    grad_q: Tensor,
    grad_k: Tensor,
    grad_v: Tensor,
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
    deterministic: bool = True,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
) -> tuple[Argument, ...]:
    sizes = _sizes(q, k)
    grad, q, k, v, out = (_rows_in_place(x) for x in (grad, q, k, v, out))
    delta = torch.empty(_rows_shape(q), dtype=torch.float32, device=q.device)
    return (
        *(grad_q, grad_k, grad_v, delta, grad),
        None if grad_lse is None else grad_lse.contiguous(),
        *(q, k, v, out, lse.contiguous()),
        *sizes,
        *(stride for x in (grad, q, k, v, out) for stride in _strides(x)),
        scale_of(scale, q.shape[-1]),
        float(softcap or 0.0),
        *visible_sides(causal, window, q.shape[-3] + k.shape[-3]),
        *_offsets(cu_seqlens_q, cu_seqlens_k),
        deterministic,
    )


def _workspace_backward(
    rung: str,
    grad_q: Tensor,
    grad_k: Tensor,
    grad_v: Tensor,
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    *_: Any,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """All probabilities and the gradients of all scores, for the first rung.

    And sums of grad_q in float32, where blocks add them up in memory, with two numbers
    for each row and 32 for 64 of them; rows and columns fill their tiles.
    """
    if rung == "first":
        size = (*lse.shape, k.shape[1])
        return lse.new_empty(size), lse.new_empty(size), None
    is_served = (
        q.dim() == 4  # no packed sequences
        and q.dtype != torch.float32
        and q.shape[3] <= 128
        and is_hopper(q)
    )
    if rung not in ("", "twin") or not is_served:
        return None, None, None
    n_boxes, n_cols = -(-q.shape[1] // 128) * 2, 64 if q.shape[3] <= 64 else 128
    return None, None, lse.new_empty((*lse.shape[:2], n_boxes, 64 * (n_cols + 2) + 32))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    q, k, v, *ctx.parameters, cu_seqlens_q, cu_seqlens_k = inputs
    ctx.save_for_backward(q, k, v, *output, cu_seqlens_q, cu_seqlens_k)


def _compute(
    run: Any, ctx: Any, grad: Tensor | None, grad_lse: Tensor | None
) -> tuple[Tensor | None, ...]:
    q, k, v, out, lse, *offsets = ctx.saved_tensors
    if grad is None:  # only lse is differentiated
        grad = torch.zeros_like(out)
    saved = (q, k, v, out, lse, grad_lse, *ctx.parameters, *offsets)
    grads = run(BACKWARD, grad, *saved)
    return *grads, *[None] * (len(ctx.parameters) + len(offsets))


BACKWARD = library.register(
    Op(
        name="attention_backward",
        forward="attention",
        schema=(
            "(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse,"
            " Tensor? grad_lse=None, bool causal=False, int[]? window=None,"
            " float? scale=None, float? softcap=None, bool deterministic=True,"
            " Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None)"
            " -> (Tensor, Tensor, Tensor)"
        ),
        allocate=_allocate_backward,
        operands=_operands_backward,
        reference=reference_backward,
        workspace=_workspace_backward,
        rungs=("first", "tiled", "tensor_cores", "twin"),
    )
)

OP = library.register(
    Op(
        name="attention",
        schema=(
            "(Tensor q, Tensor k, Tensor v, bool causal=False, int[]? window=None,"
            " float? scale=None, float? softcap=None, bool deterministic=True,"
            " Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None)"
            " -> (Tensor, Tensor)"
        ),
        allocate=_allocate,
        operands=_operands,
        reference=reference,
        workspace=_workspace,
        rungs=("first", "tiled", "tensor_cores", "twin"),
        gradient=Gradient(save=_save, compute=_compute),
    )
)
