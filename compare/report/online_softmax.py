"""One row of attention, tile by tile of keys: how online softmax gets to its result.

It is computed here as the kernels of rung tiled do it, in float32 and with the names
that they have for it; a test compares its end with what those return.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bindings.ops._attention_reference import scale_of, visible_sides
from bindings.registry import OPS
from compare.judge import acceptance
from compare.judge.cases import Case, make_arguments
from compare.report.comparison import case_name
from compare.report.tables import Grid

RUNG = "tiled"
_COLUMNS = 3  # of the result that are shown


@dataclass(frozen=True)
class Tile:
    """A tile of keys, and what the row has come to with it."""

    first: int  # of its keys
    end: int  # the first key behind it
    n_seen: int  # how many of its keys the query sees
    tile_max: float | None  # its largest score; None where the query sees no key
    row_max: float | None  # the largest score so far, likewise
    is_raised: bool  # whether that is one of its own
    rescale: float  # what the sums of earlier tiles were multiplied by
    row_sum: float  # of the exponentials, relative to the maximum so far
    out: tuple[float, ...]  # the first columns of the result so far


@dataclass(frozen=True)
class Story:
    """A row of attention, from the first of its tiles to the last."""

    case: Case
    query: int
    tiles: tuple[Tile, ...]
    n_raised: int  # how many of them raised the maximum, the first included
    out: tuple[float, ...]  # the whole result, rounded to the dtype of the case
    lse: float | None  # None where the query sees no key
    # How far result and lse are off float64, and how far they may be, relative to the
    # largest value of the row.
    out_error: float
    out_allowed: float
    lse_error: float
    lse_allowed: float


def block_size(head_dim: int) -> int:
    """How many keys rung tiled has in a tile, and queries in a block, in CUDA.

    Triton's has as many keys in a tile on Hopper, and up to 32 elsewhere.
    """
    return 64 if head_dim <= 128 else 32


def tell(case: Case) -> Story | None:
    """The story of a query of the first head; None where there is no query.

    It is the first from the middle on whose maximum rises again after the first tile;
    if that of none in its block does, the one in the middle.
    """
    q, k, _, causal, window, *_ = arguments = make_arguments(OPS["attention"], case)
    if not q.numel() or not k.shape[2]:
        return None
    middle, block = q.shape[1] // 2, block_size(q.shape[3])
    sides = visible_sides(causal, window, q.shape[1] + k.shape[1])
    end = min(middle // block * block + block, q.shape[1])
    stories = (_story(case, query, arguments, sides) for query in range(middle, end))
    in_the_middle = next(stories)
    told = itertools.chain([in_the_middle], stories)
    return next((each for each in told if each.n_raised > 1), in_the_middle)


def _story(
    case: Case, query: int, arguments: tuple[Any, ...], sides: tuple[int, int]
) -> Story:
    q, k, v, _, _, scale, softcap, *_ = arguments
    (_, n_queries, _, head_dim), n_keys = q.shape, k.shape[1]

    def keys_of(query: int) -> range:
        diagonal = query + n_keys - n_queries
        first, end = diagonal - sides[0], diagonal + sides[1] + 1
        return range(max(first, 0), max(min(end, n_keys), 0))

    block = block_size(head_dim)
    first_query = query // block * block  # of those that it shares a block with
    last_query = min(first_query + block, n_queries) - 1
    keys = range(keys_of(first_query).start, keys_of(last_query).stop)
    seen = keys_of(query)
    tiles, out, lse = [], torch.zeros(head_dim), torch.tensor(-math.inf)
    row = q[0, query, 0], k[0, :, 0], v[0, :, 0]
    for step in _walk(*row, keys, block, seen, scale, softcap):
        tile, out, lse = step
        tiles.append(tile)
    out = out.to(case.dtype)
    expected = acceptance.expect(
        OPS["attention"],
        (
            q[:1, query : query + 1, :1],
            *(x[:1, seen.start : seen.stop, :1] for x in (k, v)),
            *(False, None, scale, softcap),
        ),
    )
    of_out, of_lse = (
        acceptance.judge(x.reshape(each.torch.shape), each)
        for x, each in zip((out, lse), expected, strict=True)
    )
    return Story(
        case=case,
        query=query,
        tiles=tuple(tiles),
        n_raised=sum(tile.is_raised for tile in tiles),
        out=tuple(out.tolist()),
        lse=_known(lse),
        out_error=of_out.error.max,
        out_allowed=of_out.allowed.max,
        lse_error=of_lse.error.max,
        lse_allowed=of_lse.allowed.max,
    )


def _walk(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: range,
    block: int,
    seen: range,
    scale: float | None,
    softcap: float | None,
) -> Iterator[tuple[Tile, Tensor, Tensor]]:
    """Each tile, and what the result and lse would be if it were the last."""
    q, k, v = q.float(), k.float(), v.float()
    sums, row_sum = torch.zeros_like(q), torch.zeros(())
    row_max = torch.tensor(-math.inf)
    for start in range(keys.start, keys.stop, block):
        tile = range(start, min(start + block, keys.stop))
        scores = k[tile.start : tile.stop] @ q * scale_of(scale, len(q))
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        is_seen = torch.tensor([key in seen for key in tile])
        scores = scores.masked_fill(~is_seen, -math.inf)

        # Softmax: what the sums so far are relative to may have changed.
        old_max, row_max = row_max, torch.maximum(row_max, scores.max())
        origin = torch.where(row_max == -math.inf, 0.0, row_max)
        rescale = torch.exp(old_max - origin)
        p = torch.exp(scores - origin)
        row_sum = row_sum * rescale + p.sum()
        sums = sums * rescale + p @ v[tile.start : tile.stop]

        out = sums * torch.where(row_sum == 0.0, 0.0, 1.0 / row_sum)
        told = Tile(
            first=tile.start,
            end=tile.stop,
            n_seen=int(is_seen.sum()),
            tile_max=_known(scores.max()),
            row_max=_known(row_max),
            is_raised=bool(row_max > old_max),
            rescale=rescale.item(),
            row_sum=row_sum.item(),
            out=tuple(out[:_COLUMNS].tolist()),
        )
        yield told, out, origin + torch.log(row_sum)


def _known(x: Tensor) -> float | None:
    """A number, but for the -inf of a maximum over nothing: JSON has none."""
    return None if x == -math.inf else x.item()


# ---- As a table ---------------------------------------------------------------------


def title(story: Story) -> str:
    """Which row it is, and why that one."""
    why = ", the first from the middle on whose maximum rises again"
    return (
        f"query {story.query} of the first head at {case_name(story.case)}, as rung "
        f"{RUNG} computes it{why if story.n_raised > 1 else ''}"
    )


def grid(story: Story) -> Grid:
    """A row for each tile."""
    n_columns = min(_COLUMNS, len(story.out))
    header = (
        *("keys", "seen", "largest\nscore", "maximum\nso far", "earlier\nsums times"),
        "sum of\nexponentials",
        *(f"result so\nfar, [{column}]" for column in range(n_columns)),
    )
    rows = (
        (
            f"{tile.first} to {tile.end - 1}",
            str(tile.n_seen),
            *(_number(x) for x in (tile.tile_max, tile.row_max)),
            *(_number(x) for x in (tile.rescale, tile.row_sum, *tile.out)),
        )
        for tile in story.tiles
    )
    return Grid("one row", header, tuple(rows))


def notes(story: Story) -> tuple[str, ...]:
    """How often the maximum rose, and how far the end is off float64."""
    if story.lse is None:
        return ("The query sees no key: its result is 0, and its lse -inf.",)
    last, n_tiles = story.tiles[-1], len(story.tiles)
    tiles = "tiles" if n_tiles > 1 else "tile"
    dtype = story.case.dtype_name
    return (
        f"The maximum rose in {story.n_raised} of {n_tiles} {tiles}. lse = "
        f"{_number(last.row_max)} + log({_number(last.row_sum)}) = {story.lse:.4f}",
        f"Off float64, relative to row: the result, rounded to {dtype}, by "
        f"{story.out_error:.2g} (at most {story.out_allowed:.2g}), lse by "
        f"{story.lse_error:.2g} (at most {story.lse_allowed:.2g})",
    )


def _number(x: float | None) -> str:
    return "-inf" if x is None else f"{x:.4f}"
