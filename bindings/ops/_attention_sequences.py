"""Packed sequences of attention: their offsets, and the reference, one by one."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bindings import check


def check_offsets(
    op: str, q: Tensor, cu_seqlens_q: Tensor | None, cu_seqlens_k: Tensor | None
) -> None:
    """Raises unless both are lists of as many ints, beside q; or neither is given."""
    names = ("cu_seqlens_q", "cu_seqlens_k")
    for name, x in zip(names, (cu_seqlens_q, cu_seqlens_k), strict=True):
        if x is None:
            raise TypeError(f"{op}: {name} is None, expected both of {names} or none")
        if x.dtype != torch.int32:
            raise TypeError(f"{op}: {name} has dtype {x.dtype}, expected torch.int32")
        if x.dim() != 1 or x.shape[0] == 0:
            raise ValueError(
                f"{op}: {name} has shape {tuple(x.shape)}, expected 1 dimension of an "
                "offset more than there are sequences"
            )
        if x.device != q.device:
            raise ValueError(
                f"{op}: {name} is on {x.device} and q on {q.device}, "
                "expected the same device"
            )
    assert cu_seqlens_q is not None
    assert cu_seqlens_k is not None
    check.same_shape(op, *(names[0], cu_seqlens_q), *(names[1], cu_seqlens_k))


def check_lengths(
    op: str, side: str, offsets: Tensor, n_rows: int, longest: int | None
) -> None:
    """Raises for offsets of q or k, the `side`, that lead nowhere, if they can be read.

    Those of a GPU are not: that would mean waiting for it.
    """
    if longest is not None:
        check.is_int(op, f"max_seqlen_{side}", longest)
    is_real = type(offsets) is Tensor and not torch.compiler.is_compiling()
    if not is_real or offsets.device.type != "cpu":
        return
    last = 0
    for i, offset in enumerate(offsets.tolist()):
        if not last <= offset <= n_rows:
            raise ValueError(
                f"{op}: cu_seqlens_{side}[{i}] is {offset}, expected {last} to "
                f"{n_rows}, from the one before it to the number of rows"
            )
        if i > 0 and longest is not None and offset - last > longest:
            raise ValueError(
                f"{op}: max_seqlen_{side} is {longest}, expected {offset - last} or "
                f"more, the length of sequence {i - 1}"
            )
        last = offset


def by_sequences(
    *outputs: str,
) -> Callable[[Callable[..., tuple[Tensor, ...]]], Callable[..., tuple[Tensor, ...]]]:
    """Makes a function of batches one that takes packed sequences, too.

    It takes their offsets behind its other positional arguments. Tensors are then of
    (rows, heads, head_dim) or (heads, rows), those it takes and those it returns, which
    are like its arguments of the names `outputs`. Rows of no sequence get 0, and an lse
    of -inf.
    """

    def decorated(
        compute: Callable[..., tuple[Tensor, ...]],
    ) -> Callable[..., tuple[Tensor, ...]]:
        signature = inspect.signature(compute)
        kinds = [each.kind for each in signature.parameters.values()]
        n_own = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)

        @functools.wraps(compute)
        def computed(*arguments: Any, **options: Any) -> tuple[Tensor, ...]:
            offsets = arguments[n_own:]
            arguments = arguments[:n_own]
            if not offsets or offsets[0] is None:
                return compute(*arguments, **options)
            bound = signature.bind(*arguments, **options)
            named = bound.arguments
            tensors = {n: x for n, x in named.items() if isinstance(x, Tensor)}
            results = [_nothing_like(name, tensors["q"], named) for name in outputs]
            q_offsets, k_offsets = offsets
            lengths = tensors["q"].shape[0], tensors["k"].shape[0]
            for rows in _rows_of_sequences(q_offsets, k_offsets, *lengths):
                for name, x in tensors.items():
                    named[name] = _part(name, x, rows)[None]
                parts = compute(*bound.args, **bound.kwargs)
                for name, result, part in zip(outputs, results, parts, strict=True):
                    _part(name, result, rows).copy_(part[0])
            return tuple(results)

        return computed

    return decorated


Rows = tuple[slice, slice]  # of queries, and of keys


def _rows_of_sequences(
    cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, n_queries: int, n_keys: int
) -> list[Rows]:
    """Where sequences lie; wrong offsets are clamped, as in kernels."""
    sides = []
    for offsets, n_rows in ((cu_seqlens_q, n_queries), (cu_seqlens_k, n_keys)):
        clamped = offsets.clamp(0, n_rows).tolist()
        pairs = itertools.pairwise(clamped)
        sides.append([slice(begin, max(begin, end)) for begin, end in pairs])
    return list(zip(*sides, strict=True))


def _part(name: str, x: Tensor, rows: Rows) -> Tensor:
    """The rows of a sequence; those of keys, if the tensor of this name has them."""
    own = rows[name in ("k", "v")]
    return x[own] if x.dim() == 3 else x[:, own]


def _nothing_like(name: str, q: Tensor, named: dict[str, Any]) -> Tensor:
    """What is like an argument of this name, for rows without anything to sum up."""
    if name != "lse":
        return torch.zeros_like(named[name])
    wide = torch.promote_types(q.dtype, torch.float32)
    return q.new_full((q.shape[1], q.shape[0]), -torch.inf, dtype=wide)
