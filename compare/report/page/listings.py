"""Listings, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from compare.assembly.classify import CATEGORIES, OTHER
from compare.assembly.control_flow import find_loops
from compare.assembly.listing import Instruction, Listing
from compare.assembly.normalize import normalize
from compare.report.page.lexers import highlight_listing
from compare.report.page.links import Chains

# As many colours as one can tell apart: a class of page.css for each.
_FAMILIES = {
    "load": (
        "global load",
        "generic memory",
        "atomic",
        "async copy",
        "tensor copy",
        "cache hint",
    ),
    "store": ("global store",),
    "shared": ("shared load", "shared store", "local memory"),
    "sync": ("shuffle / vote", "barrier", "mbarrier", "fence / wait"),
    "special": ("tensor core", "special function", "division", "float64"),
    "math": ("fp math", "conversion"),
    "control": ("compare / select", "branch / control"),
    "plain": ("integer / address", "parameter / constant", "move", OTHER),
}
FAMILY_OF = {
    category: family
    for family, categories in _FAMILIES.items()
    for category in categories
}

_INDENT = "  "


@dataclass(frozen=True)
class Row:
    """A line of a listing."""

    html: Markup
    attributes: Mapping[str, object]  # for the page's script; None is left out
    executed: str = ""  # how often a thread executes it, where that is known


def listing_rows(
    listing: Listing, chains: Chains, ptx: Listing, executed: Sequence[float] | None
) -> list[Row]:
    """The lines of a listing, names normalised and loops indented.

    The listing is the PTX, or the SASS that was made from it; `executed` says how often
    a thread executes each instruction, where that is known.
    """
    depths = Counter(index for loop in find_loops(listing) for index in loop.body)
    ptx_indices = {
        each.text_line: each.index
        for each in reversed(ptx.instructions)  # the first of a line
    }
    counts = [""] * len(listing.instructions)
    if executed:
        pairs = zip(listing.instructions, executed, strict=True)
        counts = [times(count) for _, count in pairs]
    lines: list[str] = []
    owners: list[Instruction | None] = []
    for normal in normalize(listing):
        lines += [f"{label}:" for label in normal.labels]
        owners += [None] * len(normal.labels)
        lines.append(_INDENT * (depths[normal.index] + 1) + normal.text)
        owners.append(listing.instructions[normal.index])
    rows = []
    highlighted = highlight_listing(lines, listing.language)
    for html, owner in zip(highlighted, owners, strict=True):
        if owner is None:
            rows.append(Row(html, {"class": "label"}))
            continue
        chain = chains.of(owner)
        foreign = " foreign" if chain.is_foreign else ""
        attributes = {
            "class": FAMILY_OF[owner.category] + foreign,
            "data-k": CATEGORIES.index(owner.category),
            "data-c": chains.number_of(owner),
            "data-n": chain.line or None,
            "data-o": chain.origin or None,
            "data-w": owner.access_bytes or None,
            "data-p": ptx_indices.get(owner.ptx_line),  # what SASS was made from
        }
        rows.append(Row(html, attributes, counts[owner.index]))
    return rows


def times(count: float) -> str:
    """How often something is executed, which is a fraction where threads differ."""
    return f"{count:,.0f}" if count == round(count) or count >= 100 else f"{count:.3g}"
