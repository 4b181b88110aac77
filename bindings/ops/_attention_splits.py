"""Into how many parts the keys of a call of attention are split."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from bindings.ops._attention_reference import sharing, visible_sides
from bindings.ops._device import count_sms

# Queries of the heads that share a head of k and v, for which splitting pays. Tiles of
# more would read k and v too often.
MOST_ROWS = 64
# Fewer keys are a matter of a few microseconds.
LEAST_KEYS = 256
# Of a part: a tile for each of a block's warps; and its sums, float32 for each row, are
# written and read once more.
LEAST_PART, KEYS_PER_ROW = 128, 8
MOST_SPLITS = 256
# From so many of the multiprocessors on, blocks read as fast as memory can.
FULL_RATE = 0.97
# To start and to end takes a block 1.8 us, the launch that combines parts 2.2 us and
# 20 ns for each. Meanwhile a block would read so much of k: 120 keys of 128 columns,
# 150 of them, and a key or two.
ELEMENTS_TO_START = 15360
ELEMENTS_TO_COMBINE = 19200
KEYS_TO_COMBINE = 2
# What is counted in 32 bits.
MOST = 1 << 30


def block_m(n_rows: int, head_dim: int) -> int:
    """Rows of a block's tile, by the rule of both launchers (split_launches)."""
    return 32 if n_rows > 16 and head_dim <= 128 else 16


def count_splits(
    q: Tensor, k: Tensor, causal: bool, window: Sequence[int] | None
) -> int:
    """How many blocks share the keys of a tile; 0 for a call that is not split.

    The shape and the number of the GPU's multiprocessors decide.
    """
    if q.dim() == 3:  # packed sequences
        return 0
    n_batches, n_queries, n_heads, head_dim = q.shape
    n_keys = k.shape[1]
    n_rows = n_queries * sharing(q, k)
    left, _ = visible_sides(causal, window, n_queries + n_keys)
    n_seen = n_keys - max(n_keys - n_queries - left, 0)
    is_served = (
        q.dtype != torch.float32
        and 0 < n_rows <= MOST_ROWS
        and n_batches * n_heads > 0
        and n_seen > LEAST_KEYS
        and n_queries + n_keys <= MOST
    )
    if not is_served:
        return 0
    rows = block_m(n_rows, head_dim)
    n_tiles = n_batches * k.shape[2] * -(-n_rows // rows)
    least = max(LEAST_PART, KEYS_PER_ROW * min(n_rows, rows))
    n_splits = _cheapest(
        n_tiles, n_seen, head_dim, count_sms(q), min(n_seen // least, MOST_SPLITS)
    )
    # Tiles of a head of its own would read k and v more often than another rung's do.
    reads_again = sharing(q, k) == 1 and n_rows > rows
    return 0 if n_splits == 1 and reads_again else n_splits


@functools.lru_cache(maxsize=1024)  # a call takes no longer than to try all of them
def _cheapest(n_tiles: int, n_seen: int, head_dim: int, n_sms: int, most: int) -> int:
    """The number of splits that takes the least time, by a model of an H200.

    A block fills a multiprocessor's shared memory, so that blocks come in waves; where
    keys are not split, two share it and start together. The time is counted in keys
    that a block reads meanwhile.
    """
    at_full_rate = n_tiles * n_seen / (FULL_RATE * n_sms)

    def keys(n_splits: int) -> float:
        n_waves = -(-n_tiles * n_splits // n_sms)
        read = max(n_waves * -(-n_seen // n_splits), at_full_rate)
        n_starts = n_waves if n_splits > 1 else -(-n_waves // 2)
        start = n_starts * ELEMENTS_TO_START / head_dim
        if n_splits == 1:
            return read + start
        combine = ELEMENTS_TO_COMBINE / head_dim + n_splits * KEYS_TO_COMBINE
        return read + start + combine

    return min(range(1, most + 1), key=keys)
