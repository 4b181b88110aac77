"""Two listings side by side, aligned by what their instructions do.

Two compilers never choose the same sequence of instructions, so a diff of their texts
is noise. What both must do stands in the same order, though: accesses to memory and
exchanges between threads. These hold the listings together. What is computed between
two of them is compared as a bag, because any order of it would do: one row for each
kind of instruction, with how many of them each side has, in the order of first use.
"""

import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from compare.assembly.listing import Listing
from compare.assembly.sections import (
    BACKGROUND,
    LOOP,
    SYNCHRONISES,
    WEIGHTS,
    Item,
    sections_of_items,
)

Kind = Literal["same", "changed", "left", "right"]

_MARKERS: dict[Kind, str] = {"same": " ", "changed": "|", "left": "<", "right": ">"}

# Shares of a weight that are added for equal forms, and for equal counts.
_SAME_BONUS = 0.25
_COUNT_BONUS = 0.1


@dataclass(frozen=True)
class DiffRow:
    """One row of the aligned listings."""

    kind: Kind  # whether both sides have it, and alike, or only one of them
    left: str  # the text of the left side; empty if it has none
    right: str  # the text of the right side
    # Of the instructions; `loop` where one begins or ends; `background` for arithmetic
    # on integers, moves, comparisons and branches.
    category: str
    # The instructions of the left listing that the row stands for.
    left_indices: tuple[int, ...]
    right_indices: tuple[int, ...]  # those of the right listing

    @property
    def marker(self) -> str:
        """The mark between the columns, as `diff -y` prints it."""
        return _MARKERS[self.kind]


_Pair = tuple[Item | None, Item | None]


def align(left: Listing, right: Listing) -> tuple[DiffRow, ...]:
    """Aligns two listings of the same language."""
    left_items, right_items = sections_of_items(left), sections_of_items(right)
    rows: list[DiffRow] = []
    next_left = next_right = 0
    ends = (len(left_items), len(right_items))
    for pair in [*_best_pairs(left_items, right_items), ends]:
        only_left = itertools.chain(*left_items[next_left : pair[0]])
        only_right = itertools.chain(*right_items[next_right : pair[1]])
        rows += [_row(each, None) for each in only_left]
        rows += [_row(None, each) for each in only_right]
        if pair != ends:
            pairs = _pairs_of_items(left_items[pair[0]], right_items[pair[1]])
            rows += itertools.starmap(_row, pairs)
        next_left, next_right = pair[0] + 1, pair[1] + 1
    return tuple(rows)


def _row(left: Item | None, right: Item | None) -> DiffRow:
    kind: Kind = "left" if left else "right"
    if left and right:
        kind = "same" if _are_same(left, right) else "changed"
    items = [each for each in (left, right) if each]
    counts_shown = any(len(each.indices) > 1 for each in items)
    return DiffRow(
        kind=kind,
        left=_text(left, counts_shown) if left else "",
        right=_text(right, counts_shown) if right else "",
        category=items[0].category,
        left_indices=left.indices if left else (),
        right_indices=right.indices if right else (),
    )


def _are_same(left: Item, right: Item) -> bool:
    # No two backgrounds are alike, and it says nothing: they all count as the same.
    if left.category in (BACKGROUND, LOOP):
        return True
    return left.form == right.form and len(left.indices) == len(right.indices)


def _text(item: Item, count_shown: bool) -> str:
    if item.category in (BACKGROUND, LOOP) or not count_shown:
        return item.text
    return f"{item.summary} x{len(item.indices)}"


# ---- Which sections stand side by side, and which items in them ----


def _best_pairs(
    left: Sequence[list[Item]], right: Sequence[list[Item]]
) -> list[tuple[int, int]]:
    """The pairs, in order on both sides, whose gains have the greatest sum."""
    gain = np.array([[_gain(one, other) for other in right] for one in left])
    # best[i, j]: what the first i of the left and the first j of the right can reach.
    best = np.zeros((len(left) + 1, len(right) + 1))
    if right:
        for i in range(len(left)):
            candidates = np.maximum(best[i, 1:], best[i, :-1] + gain[i])
            best[i + 1, 1:] = np.maximum.accumulate(candidates)
    pairs = []
    i, j = len(left), len(right)
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs[::-1]


def _gain(left: list[Item], right: list[Item]) -> float:
    """The worth of seeing two sections side by side."""
    gain = 0.0
    for one, other in _partners(left, right):
        counts = sorted((len(one.indices), len(other.indices)))
        bonus = _COUNT_BONUS * counts[0] / counts[1]
        if one.form == other.form:
            bonus += _SAME_BONUS
        gain += WEIGHTS[one.category] * (1 + bonus)
    return gain


def _pairs_of_items(left: list[Item], right: list[Item]) -> list[_Pair]:
    """The rows of two sections that stand side by side."""
    partners = _partners(left, right)
    partner_of_left = {id(one): other for one, other in partners}
    partner_of_right = {id(other): one for one, other in partners}
    pairs: list[_Pair] = [(each, partner_of_left.get(id(each))) for each in left]
    # What only the right has follows what it follows there.
    place = 0
    for each in right:
        partner = partner_of_right.get(id(each))
        if partner is None:
            while place < len(pairs) and pairs[place][1] is None:
                place += 1
            pairs.insert(place, (None, each))
            place += 1
        else:
            place = pairs.index((partner, each)) + 1
    return pairs


def _partners(left: list[Item], right: list[Item]) -> list[tuple[Item, Item]]:
    """The items that stand side by side: first those of one form, then the similar."""
    similarities: tuple[Callable[[Item], Hashable], ...] = (
        lambda item: item.form,
        lambda item: (item.operation, item.access_bytes),
        lambda item: item.operation,
    )
    partners: list[tuple[Item, Item]] = []
    sides = left, right
    free = [[e for e in side if e.category not in SYNCHRONISES] for side in sides]
    for similarity in similarities:
        if not all(free):
            break
        partners += _alike(free, similarity)
        taken = {id(item) for pair in partners for item in pair}
        free = [[each for each in side if id(each) not in taken] for side in free]
    waiting = [[e for e in side if e.category in SYNCHRONISES] for side in sides]
    if not all(waiting):
        return partners
    # Barriers and fences stand side by side if they do so behind the same items.
    numbers = {
        id(item): number for number, pair in enumerate(partners) for item in pair
    }
    places: dict[int, tuple[str, frozenset[int]]] = {}
    for side in sides:
        before: set[int] = set()
        for each in side:
            if each.category in SYNCHRONISES:
                places[id(each)] = each.operation, frozenset(before)
            elif each.category != BACKGROUND and id(each) in numbers:
                before.add(numbers[id(each)])
    return partners + _alike(waiting, lambda item: places[id(item)])


def _alike(
    sides: Sequence[list[Item]], key: Callable[[Item], Hashable]
) -> list[tuple[Item, Item]]:
    """Those of one key, the first of the left with the first of the right and so on."""
    left, right = sides
    partners: dict[Hashable, list[Item]] = {}
    for each in reversed(right):
        partners.setdefault(key(each), []).append(each)
    return [(each, found.pop()) for each in left if (found := partners.get(key(each)))]
