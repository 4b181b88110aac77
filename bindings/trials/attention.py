"""What attention is tried, timed and judged on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bindings.ops import attention
from bindings.ops._attention_reference import (
    visible_sides,
    yardstick,
    yardstick_backward,
)
from bindings.trial import Traffic, Trial


def sizes_of(shape: tuple[int, ...]) -> tuple[int, int, int, int, int, int]:
    """Batch, queries, keys, heads, heads of k and v, and head_dim.

    A shape of fewer numbers is of rows of scores: its last two are heads and keys, of
    which it takes 2 and 1025 at most, and of the batch 2. Then there are as many
    queries as keys, 32 at most, and a small head_dim.
    """
    if len(shape) == 6:
        batch, n_queries, n_keys, n_heads, n_kv_heads, head_dim = shape
        return batch, n_queries, n_keys, n_heads, n_kv_heads, head_dim
    *batches, n_heads, n_keys = (1, 1, *shape)
    batch, n_heads = min(math.prod(batches), 2), min(n_heads, 2)
    n_keys = min(n_keys, 1025)
    return batch, min(n_keys, 32), n_keys, n_heads, n_heads, 24


def _inputs(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    batch, n_queries, n_keys, n_heads, n_kv_heads, head_dim = sizes_of(shape)
    keys = (batch, n_keys, n_kv_heads, head_dim)
    return (
        torch.randn((batch, n_queries, n_heads, head_dim), generator=generator),
        torch.randn(keys, generator=generator),
        torch.randn(keys, generator=generator),
    )


def _traffic(shape: tuple[int, ...], element_size: int) -> Traffic:
    batch, n_queries, n_keys, n_heads, n_kv_heads, head_dim = sizes_of(shape)
    queries = batch * n_queries * n_heads * head_dim * element_size
    keys = batch * n_keys * n_kv_heads * head_dim * element_size
    return Traffic(queries + 2 * keys, queries + 4 * batch * n_heads * n_queries)


def _flops(shape: tuple[int, ...], params: Mapping[str, Any]) -> int:
    batch, n_queries, n_keys, n_heads, _, head_dim = sizes_of(shape)
    causal, window = params.get("causal", False), params.get("window")
    left, right = visible_sides(causal, window, n_queries + n_keys)
    diagonals = range(n_keys - n_queries, n_keys)
    n_seen = sum(
        max(min(d + right + 1, n_keys) - max(d - left, 0), 0) for d in diagonals
    )
    return 4 * batch * n_heads * n_seen * head_dim


_PAPERS = (
    (4, 4096, 4096, 16, 16, 128),
    (1, 16384, 16384, 16, 16, 128),
    (4, 4096, 4096, 32, 32, 64),
    (4, 4096, 4096, 32, 8, 128),
    (2, 4096, 4096, 8, 8, 256),
)
# The last tiles of a sequence are not full, or columns of a tile are empty.
_UNEVEN = (
    (4, 4001, 4001, 16, 16, 128),
    *((4, 4096, 4096, 16, 16, head_dim) for head_dim in (72, 96, 192)),
)
# A token of each sequence, as while text is generated: memory sets the time.
_DECODING = ((1, 1, 131072, 32, 8, 128), (16, 1, 8192, 32, 8, 128))

FORWARD = Trial(
    op=attention.OP,
    yardstick=yardstick,
    inputs=_inputs,
    traffic=_traffic,
    flops=_flops,
    shape_names=("batch", "queries", "keys", "heads", "kv_heads", "head_dim"),
    sweep_over="keys",
    small_shape=(1, 100, 100, 2, 2, 64),
    large_shape=(4, 4096, 4096, 16, 16, 128),
    benchmark_shapes=(*_PAPERS, *_UNEVEN, *_DECODING),
    # The first rung takes half a second over the first of these.
    ladder_shape=(1, 2048, 2048, 16, 16, 128),
    sweep_shapes=tuple(
        (16384 // n, n, n, 16, 16, 128) for n in (512, 1024, 2048, 4096, 8192, 16384)
    ),
    # Without elements, fewer queries than keys and more, and around the ends of tiles.
    edge_shapes=(
        (0, 5, 5, 2, 2, 8),
        (2, 0, 5, 2, 2, 8),
        (2, 5, 0, 2, 2, 8),
        (1, 1, 1, 1, 1, 1),
        (2, 3, 7, 4, 2, 5),
        (1, 7, 3, 3, 1, 40),
        (1, 31, 33, 2, 1, 72),
        (1, 33, 65, 1, 1, 96),
        (1, 65, 63, 2, 1, 128),
        (1, 113, 203, 1, 1, 24),
        (1, 1, 257, 4, 2, 64),
        (1, 129, 63, 1, 1, 192),
        (1, 17, 130, 1, 1, 256),
    ),
    variants=(
        {},
        {"causal": True},
        {"causal": True, "window": (20, 0), "softcap": 5.0},
        {"window": (3, 9), "scale": -0.05},
    ),
    # What others have been made fast for, too.
    timed_variants=({}, {"causal": True}),
    timed_dtypes=("bfloat16",),
    # Scores and their products with values leave room for sums.
    largest_input=1e12,
    code_contract=None,
    other_kernels={
        "attention_count_kernel": "On Hopper, one thread of it starts the count of "
        "tiles that a causal call's blocks take.",
        "attention_split_kernel": "Calls of few queries of 16 bits and more than 256 "
        "keys, as in decoding, split the keys among blocks.",
        "attention_combine_kernel": "Puts together what these blocks leave.",
    },
)


def _inputs_backward(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, ...]:
    q, k, v = _inputs(shape, generator)
    return torch.randn(q.shape, generator=generator), q, k, v


def _complete_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, ...]:
    has_numbers = q.device.type != "meta"
    out, lse = (yardstick if has_numbers else attention.OP.allocate)(q, k, v)
    return grad, q, k, v, out, lse


def _traffic_backward(shape: tuple[int, ...], element_size: int) -> Traffic:
    batch, n_queries, n_keys, n_heads, n_kv_heads, head_dim = sizes_of(shape)
    queries = batch * n_queries * n_heads * head_dim * element_size
    keys = batch * n_keys * n_kv_heads * head_dim * element_size
    statistics = 4 * batch * n_heads * n_queries
    return Traffic(3 * queries + 2 * keys + statistics, queries + 2 * keys)


BACKWARD = replace(
    FORWARD,
    op=attention.BACKWARD,
    yardstick=yardstick_backward,
    inputs=_inputs_backward,
    complete=_complete_backward,
    traffic=_traffic_backward,
    flops=lambda shape, params: 5 * _flops(shape, params) // 2,
    benchmark_shapes=_PAPERS,
    # Where one key has nearly all the weight, the gradient of its score is a difference
    # of two numbers that are nearly the same.
    is_judged_by_row=False,
    other_kernels={
        "attention_backward_keys_kernel": "The gradients of keys and values of long "
        "rows, on Hopper, whose sums leave no registers for those of queries.",
        "attention_backward_queries_kernel": "Those of queries, likewise.",
        "attention_begin_sums_kernel": "What is added up begins as 0.",
        "attention_end_sums_kernel": "Scales and rounds these sums.",
    },
    # Scores of larger inputs are off by 0.001 and more, and so are exponentials of them
    # less an lse that was computed in another order.
    largest_input=10.0,
    # Those that scores of the same size have: what `complete` returns is of no variant.
    variants=(
        {},
        {"causal": True},
        {"window": (3, 9)},
        {"causal": True, "deterministic": False},
    ),
    timed_variants=tuple(
        causal | order
        for order in ({}, {"deterministic": False})
        for causal in ({}, {"causal": True})
    ),
)
