"""The instruction mix of a kernel."""

from collections import Counter
from dataclasses import dataclass

from compare.assembly.classify import CATEGORIES
from compare.assembly.listing import Listing


@dataclass(frozen=True)
class Mix:
    """The number of instructions of each kind in a listing."""

    total: int
    counts: dict[str, int]  # by category, in the order of `CATEGORIES`; none is 0
    # For the categories that move data, the count by bytes for one thread.
    widths: dict[str, dict[int, int]]


def mix_of(listing: Listing) -> Mix:
    """Counts the instructions as they stand, not as often as they are executed."""
    counts = Counter(each.category for each in listing.instructions)
    widths: dict[str, Counter[int]] = {}
    for each in listing.instructions:
        if each.access_bytes:
            widths.setdefault(each.category, Counter())[each.access_bytes] += 1
    return Mix(
        total=len(listing.instructions),
        counts={name: counts[name] for name in CATEGORIES if counts[name]},
        widths={
            name: dict(sorted(widths[name].items()))
            for name in CATEGORIES
            if name in widths
        },
    )
